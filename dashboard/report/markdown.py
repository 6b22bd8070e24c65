"""The report as Markdown, with its plots as SVG files beside it."""

from xml.etree.ElementTree import Element, tostring

from dashboard.report import svg
from dashboard.report.charts import plots
from dashboard.report.material import Material
from orchestrator.recommendation import markdown


def to_markdown(material: Material, stem: str) -> tuple[str, dict[str, str]]:
    """The text, and the SVG files by name that it shows; their names begin with `stem`."""
    found = plots(material)
    files = {f"{stem}-{plot.name}.svg": _standalone(plot.picture) for plot in found}
    pictures = [f"![{plot.picture.get('aria-label')}]({stem}-{plot.name}.svg)\n\n{plot.caption}" for plot in found]
    title = f"# {material.study.question or material.study.name}"
    return "\n\n".join([title, markdown(material.found), *pictures]) + "\n", files


def _standalone(picture: Element) -> str:
    """With its own style, because no page gives it one."""
    style = Element("style")
    style.text = svg.STYLE
    picture.insert(0, style)
    text = tostring(picture, encoding="unicode")
    picture.remove(style)
    return text + "\n"
