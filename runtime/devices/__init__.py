"""What runs plans; each is imported by the name of its kind.

In reading order: registry, fake, cpu/, cuda/.
"""
