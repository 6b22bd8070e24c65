"""`plt report STUDY --out FILE.html`"""

from pathlib import Path

import click


@click.command("report")
@click.argument("study")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="FILE.html, or FILE.md with its plots as SVG files beside it. [default: STUDY.html]",
)
@click.option("--where", multiple=True, metavar="CONSTRAINT", help="As for `plt recommend`.")
@click.option("--worth", type=float, help="As for `plt recommend`.")
def command(study: str, out: Path | None, where: tuple[str, ...], worth: float | None) -> None:
    """Write a report of STUDY to forward: the recommendation, its evidence, plots and every configuration.

    The HTML file needs nothing outside itself: no network, no script.
    """
    import importlib

    from orchestrator.errors import ServiceError, StudyError
    from orchestrator.home import Home
    from orchestrator.recommendation.words import headline
    from orchestrator.studies import read_study

    out = out or Path(f"{study}.html")
    if out.suffix not in (".html", ".md"):
        raise StudyError(f"--out is {str(out)!r}; it must end in .html or .md")
    home = Home.from_environment()
    report = importlib.import_module("dashboard.report")
    material = report.gather(home, read_study(home, study), where=where, worth=worth)
    files: dict[str, str] = {}
    if out.suffix == ".html":
        text = report.to_html(material)
    else:
        text, files = report.to_markdown(material, out.stem)
    try:
        for name, content in files.items():
            (out.parent / name).write_text(content, encoding="utf-8")
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ServiceError(f"cannot write {out} ({error.strerror}); give --out a path that you may write") from None
    click.echo(f"{out}: {headline(material.found)}")
