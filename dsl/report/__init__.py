"""A report's data in; its page, its text and its drawings out. The page is one HTML file that asks for nothing else.

In reading order: report, comparison, page, svg, layered, remarks, text.
"""
