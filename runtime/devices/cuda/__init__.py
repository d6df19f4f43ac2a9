"""The CUDA device and its executables.

In reading order: device, executable, timing, profile, driver/, memory/, compile/, modules/, libraries/, graphs/.
"""
