"""Small charts as SVG: points with intervals, lines, and maps of cells. No script; colours of text follow the reader's
light or dark setting through the classes in `STYLE`; every chart says in words what it shows.

A chart is 400 units wide whatever the screen, so that its text stays readable on a phone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element, SubElement

WIDTH, HEIGHT = 400.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 12.0, 12.0, 46.0
STYLE = """
.c-text{fill:#333;font:12px system-ui,sans-serif}.c-axis{stroke:#8a8f98;stroke-width:1;fill:none}
.c-grid{stroke:#8a8f98;stroke-opacity:.25;stroke-width:1}
@media (prefers-color-scheme:dark){.c-text{fill:#ddd}}
@media print{.c-text{fill:#333}}
"""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One point."""

    x: float
    y: float
    colour: str
    title: str
    """Shown when the pointer rests on it."""
    y_low: float | None = None
    """Ends of its interval; None draws none."""
    y_high: float | None = None
    symbol: str = "circle"
    """`circle`, `diamond` or `square`."""
    size: float = 5.0
    """Radius."""
    opacity: float = 1.0
    hollow: bool = False


@dataclass(frozen=True, kw_only=True)
class Line:
    """Points joined in their order."""

    points: Sequence[tuple[float, float]]
    colour: str
    dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Title and, where values are not on a scale of their own, the places that have a label."""

    title: str
    labels: Sequence[tuple[float, str]] = field(default_factory=tuple)


def chart(x: Axis, y: Axis, alt: str, *, marks: Sequence[Mark] = (), lines: Sequence[Line] = ()) -> Element:
    """A chart with linear axes around everything it holds; empty ones get axes from 0 to 1."""
    xs = [mark.x for mark in marks] + [point[0] for line in lines for point in line.points] + [p for p, _ in x.labels]
    ys = [value for mark in marks for value in (mark.y, mark.y_low, mark.y_high) if value is not None]
    ys += [point[1] for line in lines for point in line.points] + [place for place, _ in y.labels]
    plane = _Plane(_range(xs), _range(ys))
    root = _root(alt, HEIGHT)
    _draw_axes(root, plane, x, y)
    for line in lines:
        points = " ".join(f"{plane.x(a):.1f},{plane.y(b):.1f}" for a, b in line.points)
        dash = {"stroke-dasharray": "5 4"} if line.dashed else {}
        SubElement(
            root, "polyline", {"points": points, "fill": "none", "stroke": line.colour, "stroke-width": "1.8", **dash}
        )
    for mark in marks:
        _draw_mark(root, plane, mark)
    return root


def cells(rows: Sequence[Sequence[float]], row_name: str, column_name: str, alt: str, colour: str) -> Element:
    """A map of shares from 0 to 1, one labelled cell each, darker for more; at most some dozens a side read well."""
    count = max((len(row) for row in rows), default=1)
    size = min(44.0, (WIDTH - _LEFT) / count)
    root = _root(alt, size * len(rows) + 40)
    for index, row in enumerate(rows):
        _text(root, _LEFT - 6, index * size + size / 2 + 4, f"{row_name} {index}", "end")
        for column, value in enumerate(row):
            place = {"x": f"{_LEFT + column * size:.1f}", "y": f"{index * size:.1f}"}
            shown = {"width": f"{size - 1:.1f}", "height": f"{size - 1:.1f}", "fill": colour, "class": "c-axis"}
            cell = SubElement(root, "rect", {**place, **shown, "fill-opacity": f"{max(0.0, min(1.0, value)):.3f}"})
            cell.attrib.update({"style": f"fill:{colour}"})
            SubElement(cell, "title").text = f"{row_name} {index}, {column_name} {column}: {value:.3f}"
            if size >= 30:
                _text(root, _LEFT + column * size + size / 2, index * size + size / 2 + 4, f"{value:.2f}", "middle")
    _text(root, _LEFT + count * size / 2, size * len(rows) + 22, f"{column_name} 0 to {count - 1}", "middle")
    return root


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round places within a range: steps of 1, 2 or 5 times a power of ten, at most about `most`."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class _Plane:
    """From values to places."""

    xs: tuple[float, float]
    ys: tuple[float, float]

    def x(self, value: float) -> float:
        return _LEFT + (value - self.xs[0]) / (self.xs[1] - self.xs[0]) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - (value - self.ys[0]) / (self.ys[1] - self.ys[0]) * (HEIGHT - _TOP - _BOTTOM)


def _range(values: Sequence[float]) -> tuple[float, float]:
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return low - room, high + room


def _root(alt: str, height: float) -> Element:
    root = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {WIDTH:g} {height:g}",
            "role": "img",
            "aria-label": alt,
        },
    )
    SubElement(root, "title").text = alt
    return root


def _draw_axes(root: Element, plane: _Plane, x: Axis, y: Axis) -> None:
    bottom, left, right = HEIGHT - _BOTTOM, _LEFT, WIDTH - _RIGHT
    for place, label in y.labels or [(tick, _number(tick)) for tick in ticks(*plane.ys)]:
        height = plane.y(place)
        SubElement(root, "line", _ends(left, height, right, height) | {"class": "c-grid"})
        _text(root, left - 6, height + 4, label, "end")
    for place, label in x.labels or [(tick, _number(tick)) for tick in ticks(*plane.xs)]:
        SubElement(root, "line", _ends(plane.x(place), bottom, plane.x(place), bottom + 4) | {"class": "c-axis"})
        _text(root, plane.x(place), bottom + 17, label, "middle")
    SubElement(root, "polyline", {"points": f"{left},{_TOP} {left},{bottom} {right},{bottom}", "class": "c-axis"})
    _text(root, (left + right) / 2, HEIGHT - 8, x.title, "middle")
    middle = (_TOP + bottom) / 2
    _text(root, 12, middle, y.title, "middle").set("transform", f"rotate(-90 12 {middle:g})")


def _draw_mark(root: Element, plane: _Plane, mark: Mark) -> None:
    x, y, size = plane.x(mark.x), plane.y(mark.y), mark.size
    group = SubElement(root, "g", {"opacity": f"{mark.opacity:g}"})
    SubElement(group, "title").text = mark.title
    if mark.y_low is not None and mark.y_high is not None:
        for ends in (
            _ends(x, plane.y(mark.y_low), x, plane.y(mark.y_high)),
            _ends(x - 3, plane.y(mark.y_low), x + 3, plane.y(mark.y_low)),
            _ends(x - 3, plane.y(mark.y_high), x + 3, plane.y(mark.y_high)),
        ):
            SubElement(group, "line", ends | {"stroke": mark.colour, "stroke-width": "1.4"})
    paint = {
        "fill": "none" if mark.hollow else mark.colour,
        "stroke": mark.colour,
        "stroke-width": "2" if mark.hollow else "0",
    }
    if mark.symbol == "circle":
        SubElement(group, "circle", {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": f"{size:g}", **paint})
        return
    corners = (
        [(-1, -1), (1, -1), (1, 1), (-1, 1)] if mark.symbol == "square" else [(0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)]
    )
    points = " ".join(f"{x + a * size:.1f},{y + b * size:.1f}" for a, b in corners)
    SubElement(group, "polygon", {"points": points, **paint})


def _ends(x1: float, y1: float, x2: float, y2: float) -> dict[str, str]:
    return {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}"}


def _text(root: Element, x: float, y: float, text: str, anchor: str) -> Element:
    element = SubElement(root, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor, "class": "c-text"})
    element.text = text
    return element


def _number(value: float) -> str:
    return f"{value:.4g}"
