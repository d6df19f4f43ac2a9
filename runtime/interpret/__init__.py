"""A plan run step by step in Python, the meaning that engines must agree with: serial calls, loop addresses, poison;
NumPy functions of host calls.

In reading order: serial, control_flow, library_calls, numpy_calls, convolution, dnn, topk.
"""
