"""The study file: what a study is, read from YAML and checked before anything starts."""

from orchestrator.spec.load import load_spec
from orchestrator.spec.study_spec import StudySpec

__all__ = ["StudySpec", "load_spec"]
