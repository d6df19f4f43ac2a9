"""A report's data in, its HTML page, remarks, comparisons and SVG drawings out; the page is one file.

In reading order: report, comparison, page, svg, layered, remarks, text.
"""
