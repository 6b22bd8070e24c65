"""The studies of a home, read by anyone at any time, also while their drivers write."""

from collections.abc import Mapping
from difflib import get_close_matches

from orchestrator.errors import StudyError
from orchestrator.home import Home, valid_name
from orchestrator.journal import open_journal, our_trials, study_record, trial_record
from orchestrator.records import StudyRecord
from orchestrator.spec import StudySpec
from orchestrator.study_identity import refuse_other_data, refuse_other_study


def list_studies(home: Home) -> list[str]:
    """Names of all studies, in alphabetical order."""
    names = (path.parent.name for path in home.studies.glob("*/optuna.journal"))
    return sorted(name for name in names if valid_name(name))


def read_study(home: Home, name: str) -> StudyRecord:
    """A study as it stands; a `StudyError` names the closest ones when there is none."""
    refuse_unknown(home, name)
    storage = open_journal(home.journal(name), name)
    study_id = storage.get_study_id_from_name(name)
    trials = tuple(trial_record(trial) for trial in our_trials(storage, study_id))
    return study_record(storage.get_study_user_attrs(study_id), home, name, trials)


def read_spec(home: Home, name: str) -> tuple[StudySpec, dict[str, str]]:
    """What a study was asked, and the fingerprints of the corpora it was begun with; a `StudyError` as above."""
    refuse_unknown(home, name)
    storage = open_journal(home.journal(name), name)
    attributes = storage.get_study_user_attrs(storage.get_study_id_from_name(name))
    return StudySpec.from_stored(attributes["spec"]), dict(attributes.get("corpora", {}))


def refuse_unknown(home: Home, name: str) -> None:
    """Raise a `StudyError` when there is no study of this name."""
    if home.journal(name).exists():
        return
    known = list_studies(home)
    near = get_close_matches(name, known, n=3) or known[:3]
    remedy = f"did you mean {' or '.join(near)}?" if near else "there are none yet; start one with `plt run`"
    raise StudyError(f"there is no study {name!r} in {home.root}; {remedy}")


def refuse_existing(spec: StudySpec, home: Home, corpora: Mapping[str, str]) -> None:
    """Raise a `StudyError` when a study of this name exists that `spec` cannot continue; changes nothing."""
    path = home.journal(spec.name)
    if not path.exists():
        return
    storage = open_journal(path, spec.name)
    attributes = storage.get_study_user_attrs(storage.get_study_id_from_name(spec.name))
    refuse_other_study(attributes["spec"], spec.to_plain(), str(path.parent))
    refuse_other_data(spec.name, attributes.get("corpora", {}), corpora)
