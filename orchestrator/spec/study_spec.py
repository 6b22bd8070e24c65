"""One study, as its file describes it: read, checked and frozen.

`StudySpec.from_plain` reads plain data and refuses everything that is wrong with it at once; `to_plain` gives back
plain data that reads to an equal spec, and `from_stored` reads that in any later version. Files are read by
`orchestrator.spec.load`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, InstanceOf, ValidationError, field_validator

from orchestrator.home import valid_name
from orchestrator.spec.checks import check
from orchestrator.spec.limits import Seed
from orchestrator.spec.problem import Locate, Path, Problem, missing_values, problems_of, spec_error, without_missing
from orchestrator.spec.search import Parameter, read_search
from orchestrator.spec.sections import (
    BenchmarkSection,
    BudgetSection,
    DataSection,
    DiagnosticsSection,
    ModelSection,
    PrunerSection,
    ResourcesSection,
    RetrySection,
    SamplerSection,
    Section,
    TrainSection,
)
from orchestrator.spec.written import dotted


class ObjectiveSection(Section):
    """One metric to minimise or maximise."""

    metric: str
    direction: Literal["minimize", "maximize"]


class StudySpec(Section):
    """Everything that a study is."""

    name: str
    """The study's name, its folder's and its MLflow experiment's."""
    question: str = ""
    """What it is to find out, for people."""
    model: ModelSection = ModelSection()
    data: DataSection = DataSection()
    train: TrainSection = TrainSection()
    search: dict[str, InstanceOf[Parameter]] = Field(default_factory=dict)
    """Searched knobs in the file's order; without any, the study is one configuration."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1, strict=False)] = (0,)
    """Replicates of a configuration: every one is trained with the first seed, further ones as `replicate` says."""
    replicate: Literal["undecided", "answer", "all"] = "undecided"
    """Which configurations get the further seeds: those that are not clearly dominated, those that can still change
    what `plt recommend` says, or all of them."""
    objectives: Annotated[tuple[ObjectiveSection, ...], Field(min_length=1, strict=False)]
    constraints: Annotated[tuple[str, ...], Field(strict=False)] = ()
    sampler: SamplerSection = SamplerSection()
    pruner: PrunerSection = PrunerSection()
    budget: BudgetSection
    resources: ResourcesSection = ResourcesSection()
    benchmark: BenchmarkSection | None = None
    diagnostics: DiagnosticsSection = DiagnosticsSection()
    retry: RetrySection = RetrySection()

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if not valid_name(name):
            raise ValueError("must be letters, digits, dots, dashes and underscores, at most 100, the first no sign")
        return name

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("must be distinct seeds")
        return seeds

    @classmethod
    def from_plain(cls, written: Mapping[str, Any], locate: Locate = dotted) -> Self:
        """Read plain data. Every problem is found before a `SpecError` is raised, each at the place `locate` gives."""
        spec, problems = cls._read(written)
        if spec is not None:
            problems = check(spec)
        if spec is None or problems:
            raise spec_error(problems, locate)
        return spec

    @classmethod
    def from_stored(cls, plain: Mapping[str, Any]) -> Self:
        """Read what `to_plain` gave, perhaps long ago: what was allowed then stays so, as far as it can be read."""
        spec, problems = cls._read(plain)
        if spec is None:
            raise spec_error(problems, dotted)
        return spec

    @classmethod
    def _read(cls, written: Mapping[str, Any]) -> tuple[Self | None, list[Problem]]:
        """The spec whose parts are each well formed, or None and what is wrong with them."""
        empty, filled = missing_values(written), without_missing(written)
        search, problems = read_search(filled.get("search", {}))
        spec = None
        try:
            spec = cls.model_validate({**filled, "search": search})
        except ValidationError as error:
            problems = [*problems_of(error, (), cls, filled), *problems]
        said = {problem.path for problem in empty}
        problems = [*empty, *(problem for problem in problems if problem.path not in said)]
        return (None if problems else spec), problems

    def to_plain(self) -> dict[str, Any]:
        """Numbers, text, lists and dictionaries, with what was left out of the sections still left out."""
        plain: dict[str, Any] = self.model_dump(mode="json", exclude_none=True, exclude={"search"}, by_alias=True)
        plain["search"] = {
            name: parameter.model_dump(mode="json", exclude_defaults=True) for name, parameter in self.search.items()
        }
        return plain

    def fixed(self) -> dict[str, Any]:
        """The knobs that the file fixes, by flat name."""
        return {
            name: value
            for section in (self.model, self.data, self.train)
            for name, value in section
            if value is not None
        }

    def place_of(self, knob: str) -> Path:
        """Where the file says what a knob is: under search, under its section, or the section that should have it."""
        if knob in self.search:
            return ("search", knob)
        sections = {name: getattr(self, name) for name in ("model", "data", "train")}
        written = (name for name, section in sections.items() if getattr(section, knob, None) is not None)
        known = (name for name, section in sections.items() if knob in type(section).model_fields)
        return (next(written, next(known, "model")), knob)
