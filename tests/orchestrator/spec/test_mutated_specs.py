"""Whatever is done to a study file: it is read, or refused with one `file:line: ...` line per problem."""

import json
import math
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from io import StringIO
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from orchestrator.errors import SpecError
from orchestrator.spec import StudySpec, load_spec

Place = tuple[str | int, ...]

_NUMBERS = [0, 1, -1, 2, 3, 7, 0.5, 1.0, -0.0, 1e-300, 1e300, 5e-324, 10**6, 10**12, 10**15, 10**30, 10**400, 2**63]
_WORDS = ["", " ", "> x", "learned", "swa", "auto", "bpe:300", "bpe:²", "files:x", "4M", "1e999999M", "2h", ">1"]
_TEXTS = ["val/loss", "a\nb", "x: y", "é\u2028", "kv/ratio <= 1", "val/loss >= 1e300", "'", "\x07", "x" * 5000]
_PLAIN = [*_NUMBERS, *_WORDS, *_TEXTS, None, True, False, [], {}, [1, True, 1.0], [[]], {"low": 1, "high": 10**9}]
_RETYPED = st.sampled_from([*_PLAIN, {"choices": [1, 2]}, {"choices": list(range(500))}, math.inf, math.nan])
_MISSPELL = st.sampled_from([str.upper, lambda key: key[:-1], lambda key: f"{key}_", lambda _: "a\nb", lambda _: ""])


def places(data: Any, above: Place = ()) -> Iterator[Place]:
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in entries:
        yield (*above, key)
        yield from places(value, (*above, key))


def parent_of(data: Any, place: Place) -> Any:
    for key in place[:-1]:
        data = data[key]
    return data


def mutate(draw: Callable[[st.SearchStrategy[Any]], Any], data: dict[str, Any]) -> None:
    """Drop, retype, wrap, swap or misspell one entry in place."""
    known = list(places(data))
    place = draw(st.sampled_from(known))
    parent, key = parent_of(data, place), place[-1]
    kind = draw(st.sampled_from(["drop", "retype", "retype", "swap", "misspell", "wrap"]))
    if kind == "drop":
        del parent[key]
    elif kind == "retype":
        parent[key] = deepcopy(draw(_RETYPED))
    elif kind == "wrap":
        parent[key] = draw(
            st.sampled_from([[parent[key]], {"choices": parent[key]}, str(parent[key]), [parent[key]] * 2])
        )
    elif kind == "swap":
        apart = [one for one in known if one[: len(place)] != place and place[: len(one)] != one]
        other = draw(st.sampled_from(apart or [place]))
        there = parent_of(data, other)
        parent[key], there[other[-1]] = there[other[-1]], parent[key]
    elif isinstance(key, str):
        parent[draw(_MISSPELL)(key)] = parent.pop(key)


def as_yaml(data: dict[str, Any]) -> str:
    text = StringIO()
    YAML().dump(data, text)
    return text.getvalue()


@settings(
    max_examples=100,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],  # without tracing, which takes ten times longer
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(drawn=st.data())
def test_a_mutated_study_is_read_or_refused(tmp_path: Path, example: str, drawn: st.DataObject) -> None:
    plain = json.loads(json.dumps(YAML(typ="safe", pure=True).load(example)))
    for _ in range(drawn.draw(st.integers(1, 4))):
        if plain:
            mutate(drawn.draw, plain)
    path = tmp_path / "study.yaml"
    path.write_text(as_yaml(plain), encoding="utf-8")
    try:
        spec = load_spec(path)
    except SpecError as error:
        lines = str(error).split("\n")
        found = [re.match(rf"{re.escape(str(path))}:(\d+): \S", line) for line in lines]
        assert all(found), lines
        assert all(len(line) < 2000 for line in lines)
    else:
        assert StudySpec.from_plain(spec.to_plain()) == spec
