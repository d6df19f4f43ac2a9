"""What a compiled call is made of, for people: explanations, names of its inputs and outputs, paths of source lines, a
report's data, machine info, the command line, a notebook's HTML.

In reading order: views, names, provenance, report_data, explanation, notebook,
machine_info, command_line.
"""
