"""State: what a call writes to objects, dicts and lists that its arguments hold.

In reading order: holders, opened_arguments, results, changes, writes, reader.
"""
