"""A report's data in, its HTML page, remarks, comparisons, amounts in words and SVG drawings out; the page is one
file. What collects the data is in `inspection`.

In reading order: report, comparison, page, svg, layered, remarks, text.
"""
