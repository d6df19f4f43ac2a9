"""Rules of operations that have bodies: branches, loops, and functions whose derivative the user has given.

In reading order: branch, loop, snapshots, custom, sequential.
"""
