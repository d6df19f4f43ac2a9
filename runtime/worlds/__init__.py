"""The ranks that run one program together: alone, as threads of one process, or as processes that MPI joins.

In reading order: alone, threads, launched, mpi.
"""
