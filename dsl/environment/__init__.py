"""What lies outside of the traced function: globals, closures, classes, modules, NumPy itself; the guards on it, and
the proxies and frozen containers that stand for the user's objects.

In reading order: environment, value_kinds, frozen_containers, proxies, type_proxy, outside_reads, printing,
numpy_proxy, argument_properties, returned_objects, raised_errors, guards.
"""
