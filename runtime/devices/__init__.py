"""The table of kinds of devices, which imports each by the name of its kind, and a fake one for tests.

In reading order: registry, fake, cpu/, cuda/.
"""
