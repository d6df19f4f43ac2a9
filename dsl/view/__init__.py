"""What people see of a function: a call inspected, its report's data, and explanations in words.

In reading order: views, names, provenance, report_data, explanation, notebook,
machine_info, command_line.
"""
