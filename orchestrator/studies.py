"""The studies of a home, read by anyone at any time, also while their drivers write."""

from collections.abc import Mapping
from difflib import get_close_matches

from orchestrator.errors import StudyError
from orchestrator.home import Home
from orchestrator.journal import open_journal, our_trials, study_record, trial_record
from orchestrator.journal_store import journals
from orchestrator.records import StudyRecord
from orchestrator.spec import StudySpec
from orchestrator.study_identity import refuse_other_data, refuse_other_study


def list_studies(home: Home) -> list[str]:
    """Names of all studies, in alphabetical order."""
    return journals(home).names()


def read_study(home: Home, name: str) -> StudyRecord:
    """A study as it stands; a `StudyError` names the closest ones when there is none."""
    refuse_unknown(home, name)
    storage = open_journal(home, name)
    study_id = storage.get_study_id_from_name(name)
    trials = tuple(trial_record(trial) for trial in our_trials(storage, study_id))
    return study_record(storage.get_study_user_attrs(study_id), home, name, trials)


def read_spec(home: Home, name: str) -> tuple[StudySpec, dict[str, str]]:
    """What a study was asked, and the fingerprints of the corpora it was begun with; a `StudyError` as above."""
    refuse_unknown(home, name)
    storage = open_journal(home, name)
    attributes = storage.get_study_user_attrs(storage.get_study_id_from_name(name))
    return StudySpec.from_stored(attributes["spec"]), dict(attributes.get("corpora", {}))


def refuse_unknown(home: Home, name: str) -> None:
    """Raise a `StudyError` when there is no study of this name."""
    if not journals(home).exists(name):
        raise unknown(home, name)


def unknown(home: Home, name: str) -> StudyError:
    """What to say of a name that no study has."""
    known = list_studies(home)
    near = get_close_matches(name, known, n=3) or known[:3]
    remedy = f"did you mean {' or '.join(near)}?" if near else "there are none yet; start one with `plt run`"
    return StudyError(f"there is no study {name!r} in {home.shown_storage}; {remedy}")


def refuse_existing(spec: StudySpec, home: Home, corpora: Mapping[str, str]) -> None:
    """Raise a `StudyError` when a study of this name exists that `spec` cannot continue; changes nothing."""
    if not journals(home).exists(spec.name):
        return
    storage = open_journal(home, spec.name)
    attributes = storage.get_study_user_attrs(storage.get_study_id_from_name(spec.name))
    refuse_other_study(attributes["spec"], spec.to_plain(), journals(home).removal(spec.name))
    refuse_other_data(spec.name, attributes.get("corpora", {}), corpora)
