"""Derivatives of operations with bodies: branches, loops with snapshots of their states, routines, and users' custom
derivatives.

In reading order: branch, loop, snapshots, custom, sequential.
"""
