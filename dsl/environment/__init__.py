"""What lies outside of the traced function: globals, closures, classes, NumPy itself; and its guards.

In reading order: environment, value_kinds, frozen_containers, proxies, type_proxy, decimal_context, numpy_proxy,
argument_properties, returned_objects, guards.
"""
