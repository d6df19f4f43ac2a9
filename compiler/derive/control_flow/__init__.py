"""Derivatives of operations with bodies: branches, loops with snapshots of their states, users' custom derivatives;
routines' own are in `compiler/sequential`.

In reading order: branch, loop, snapshots, custom, sequential.
"""
