"""A study's report: one HTML file without anything outside it, or Markdown with its plots beside it.

Plots are SVG made here and not Plotly figures: a report holds no script, is some tens of kilobytes instead of Plotly's
five megabytes, prints, and survives a mail filter.
"""

from dashboard.report.document import to_html
from dashboard.report.markdown import to_markdown
from dashboard.report.material import Material, gather

__all__ = ["Material", "gather", "to_html", "to_markdown"]
