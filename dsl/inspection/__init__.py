"""What a compiled call is made of, for people: explanations, a report's data, the command line, notebooks.

In reading order: views, names, provenance, report_data, explanation, notebook,
machine_info, command_line.
"""
