"""What a call writes to arrays, and to objects, dicts and lists that its arguments hold: opened arguments, the
locations of results and stored values, generated code that reads nested arguments.

In reading order: holders, opening, opened_arguments, results, changes, writes, argument_writes, reader.
"""
