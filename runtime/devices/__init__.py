"""What runs plans; each is imported by the name of its kind.

In reading order: fake, cpu/, cuda/.
"""
