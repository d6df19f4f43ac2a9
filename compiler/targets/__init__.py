"""One value per target: its printer, launch shapes and costs.

In reading order: target, cpu/, cuda/.
"""
