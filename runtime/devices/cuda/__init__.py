"""The CUDA device and its executables: plans whose steps run on a GPU, timed runs, profiles.

In reading order: device, executable, timing, profile, driver/, memory/, compile/, modules/, libraries/, graphs/.
"""
