"""The report as one HTML page: answer first, then evidence, then everything else."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from dashboard import formats, palette
from dashboard.report import svg
from dashboard.report.charts import Plot, plots
from dashboard.report.material import Material
from orchestrator.formats import with_interval, with_unit
from orchestrator.recommendation import words
from orchestrator.recommendation.candidates import loops_of
from orchestrator.statistics import Interval

_STYLE = """
:root{color-scheme:light dark;--ground:#fff;--text:#1d2129;--soft:#5b6270;--line:#d5d9e0;--box:#f3f6fa}
@media (prefers-color-scheme:dark){:root{--ground:#14171c;--text:#e6e8eb;--soft:#a3a9b5;--line:#363c47;--box:#1d222a}}
*{box-sizing:border-box}body{margin:0;background:var(--ground);color:var(--text);font:16px/1.5 system-ui,sans-serif}
main{max-width:1000px;margin:0 auto;padding:16px}h1{font-size:1.5rem;line-height:1.25;margin:.4em 0}
h2{font-size:1.15rem;margin:1.8em 0 .5em}p{margin:.5em 0}.soft{color:var(--soft)}
.answer{background:var(--box);border-left:5px solid #0072B2;padding:12px 16px;border-radius:4px}
.answer strong{font-size:1.15rem}.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:4px 10px 4px 0;border-bottom:1px solid var(--line);text-align:left;white-space:nowrap}
th{color:var(--soft);font-weight:600}tr.chosen td{font-weight:600}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:16px}
figure{margin:0}figure svg{width:100%;height:auto;display:block}figcaption{font-size:.85rem;color:var(--soft)}
.key span{display:inline-block;margin-right:14px}.dot{width:.8em;height:.8em;border-radius:50%;margin-right:.35em}
pre{overflow-x:auto;font-size:.8rem;background:var(--box);padding:10px}summary{cursor:pointer}
@media print{main{max-width:none}.plots{grid-template-columns:1fr 1fr}figure{break-inside:avoid}}
"""


def to_html(material: Material) -> str:
    """The whole page as text."""
    page = Element("html", {"lang": "en"})
    head = SubElement(page, "head")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"})
    SubElement(head, "title").text = f"{material.study.name}: report"
    SubElement(head, "style").text = _STYLE + svg.STYLE
    main = SubElement(SubElement(page, "body"), "main")
    _answer(main, material)
    _evidence(main, material)
    _plots(main, material, plots(material))
    _configurations(main, material)
    _how_to_read(main, material)
    return "<!DOCTYPE html>\n" + tostring(page, encoding="unicode", method="html") + "\n"


def _answer(main: Element, material: Material) -> None:
    study, found = material.study, material.found
    _text(main, "h1", study.question or study.name)
    states = Counter(trial.state.value for trial in study.trials)
    counts = ", ".join(f"{count} {state.lower()}" for state, count in states.items()) or "no trial yet"
    _text(main, "p", f"Study {study.name}: {study.state.value.lower()}; trials: {counts}.").set("class", "soft")
    box = SubElement(main, "div", {"class": "answer"})
    _text(SubElement(box, "p"), "strong", words.headline(found))
    sure = " ".join(words.how_sure(found))
    if sure:
        _text(box, "p", sure)


def _evidence(main: Element, material: Material) -> None:
    found = material.found
    if found.best:
        _text(main, "h2", "What each loop count reaches and costs")
        chosen = [f"R={found.loops} *"]
        _table(main, words.cost_rows(found), chosen)
        _text(main, "p", "* to take. Training compute is relative to the smallest loop count.").set("class", "soft")
    if found.steps:
        _text(main, "h2", "Does another loop pay?")
        _table(main, words.step_rows(found))
        said = "A step pays when its gain is surely above the column “pays above”. Bounds allow for the choice of the "
        said += "best configuration and for all steps that the answer rests on."
        _text(main, "p", said).set("class", "soft")
        for (few, many), gain in material.item_gains().items():
            _text(main, "p", _item_text(few, many, gain)).set("class", "soft")
    notes = list(words.notes(found))
    if notes:
        _list(main, notes)


def _item_text(few: int, many: int, gain: Interval) -> str:
    shown = (
        with_interval("val/loss", gain)
        if gain.low is None
        else f"{gain.mean:+.4f} ({gain.low:+.4f} to {gain.high:+.4f})"
    )
    return (
        f"Paired over {gain.n} held-out sequences, R={few} to {many} saves {shown} nats per answer "
        "(95 % bootstrap interval of this step alone)."
    )


def _plots(main: Element, material: Material, found: Sequence[Plot]) -> None:
    if not found:
        return
    _text(main, "h2", "In pictures")
    key = SubElement(main, "p", {"class": "key soft"})
    for loops in sorted({loops_of(one) for one in material.configurations}):
        entry = SubElement(key, "span")
        dot = SubElement(entry, "span", {"class": "dot", "style": f"background:{palette.loop_colour(loops)}"})
        dot.tail = f"R={loops}"
    gates = ", ".join(f"{symbol}: {kind}" for kind, symbol in palette.GATE_SYMBOLS.items())
    _text(key, "span", gates)
    grid = SubElement(main, "div", {"class": "plots"})
    for plot in found:
        figure = SubElement(grid, "figure")
        figure.append(plot.picture)
        _text(figure, "figcaption", plot.caption)


def _configurations(main: Element, material: Material) -> None:
    study = material.study
    if not material.configurations:
        return
    _text(main, "h2", "Every configuration")
    metrics = [objective.metric for objective in study.objectives]
    header = ("configuration", "seeds", "standing", *(_heading(metric) for metric in metrics))
    rows = [
        (
            formats.configuration_label(one.params),
            str(max((one.metrics[metric].n for metric in metrics if metric in one.metrics), default=0)),
            _standing(material, one.fingerprint, complete=one.complete, feasible=one.feasible),
            *(with_interval(metric, one.metrics[metric]) if metric in one.metrics else "-" for metric in metrics),
        )
        for one in material.configurations
    ]
    _table(main, [header, *rows])


def _heading(metric: str) -> str:
    return formats.axis(metric, []).title if "bytes" not in metric else formats.title(metric)


def _standing(material: Material, fingerprint: str, *, complete: bool, feasible: bool) -> str:
    standing = material.standings.get(fingerprint)
    if standing is None:
        return "infeasible" if not feasible else "unfinished" if not complete else "-"
    seeds = "" if standing.further_seeds is None else f", {standing.further_seeds} more seeds would tell"
    return standing.membership.value + seeds


def _how_to_read(main: Element, material: Material) -> None:
    found = material.found
    _text(main, "h2", "How to read this")
    worth = "" if found.objective is None else f" ({with_unit(found.objective.metric, found.worth)} per loop)"
    _list(
        main,
        [
            "A configuration's value is the mean over its seeds with a 95 % interval (Student's t).",
            "The answer is the smallest loop count from which no larger one gains enough"
            f"{worth}; all larger ones are compared, because quality need not grow with loops.",
            "Front: surely not beaten in every objective at once. Dominated: surely beaten. Undecided: the data do not "
            "say yet. All such statements hold together at 95 %.",
            "Latency and KV memory are measured at the deployment size of the study's benchmark, accuracy on the model "
            "that was trained.",
        ],
    )
    details = SubElement(main, "details")
    _text(details, "summary", "The study file, as resolved")
    _text(details, "pre", json.dumps(dict(material.study.spec), indent=2))


def _table(parent: Element, rows: Sequence[Sequence[str]], chosen: Iterable[str] = ()) -> None:
    table = SubElement(SubElement(parent, "div", {"class": "wide", "tabindex": "0"}), "table")
    line = SubElement(SubElement(table, "thead"), "tr")
    for cell in rows[0]:
        _text(line, "th", cell).set("scope", "col")
    body = SubElement(table, "tbody")
    for row in rows[1:]:
        line = SubElement(body, "tr", {"class": "chosen"} if row[0] in chosen else {})
        for cell in row:
            _text(line, "td", cell)


def _list(parent: Element, items: Sequence[str]) -> None:
    bullets = SubElement(parent, "ul")
    for item in items:
        _text(bullets, "li", item)


def _text(parent: Element, tag: str, text: str) -> Element:
    element = SubElement(parent, tag)
    element.text = text
    return element
