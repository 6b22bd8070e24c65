"""`plt run SPEC`"""

from pathlib import Path

import click

from orchestrator.commands.driving_options import conclude, driving_options, make_listener


@click.command("run")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "--fork",
    metavar="NAME",
    help="Start a new study NAME from SPEC, with the finished trials of SPEC's own study that still answer it.",
)
@driving_options
def command(spec: Path, fork: str | None, backend: str, address: str | None, quiet: bool, as_json: bool) -> int:
    """Run the study described by SPEC, a YAML file; an existing study of that name is continued.

    Ctrl-C stops it cleanly; running it again goes on where it stopped, finished trials untouched.
    """
    from orchestrator.corpora import corpus_fingerprints, refuse_missing_code_sets
    from orchestrator.driving import drive
    from orchestrator.fork import Fork
    from orchestrator.home import Home
    from orchestrator.spec import load_spec

    study_spec = load_spec(spec, files_here=address is None)
    corpora = {} if address else corpus_fingerprints(study_spec)
    home = Home.from_environment()
    if address is None:
        refuse_missing_code_sets(study_spec, home)
    forked = None if fork is None else Fork.of(home, study_spec, corpora, fork)
    listener = make_listener(silent=quiet or as_json)
    record = drive(
        study_spec if forked is None else forked.spec,
        corpora,
        home.create(),
        backend=backend,
        address=address,
        listener=listener,
        prepare=(lambda _study: None) if forked is None else lambda study: listener.notice(forked.into(study)),
    )
    return conclude(record, as_json)
