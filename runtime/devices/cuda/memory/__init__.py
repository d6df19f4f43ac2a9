"""Pools, page-locked memory and copies.

In reading order: pool, pinned, transfer.
"""
