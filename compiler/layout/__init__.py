"""Where elements lie: index maps, operands, shifted windows.

In reading order: operands.
"""
