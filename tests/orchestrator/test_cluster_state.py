"""What Ray's dashboard says over HTTP, from a server that answers as Ray's does."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from orchestrator.cluster_state import read_cluster
from orchestrator.errors import ServiceError

ANSWERS = {
    "nodes": [
        {
            "node_id": "n1",
            "node_name": "10.0.0.1",
            "state": "ALIVE",
            "is_head_node": True,
            "resources_total": {"CPU": 8.0, "GPU": 1.0, "memory": 2.0**30},
        },
        {"node_id": "n2", "node_name": "10.0.0.2", "state": "DEAD", "state_message": "missed heartbeats"},
    ],
    "actors": [
        {"class_name": "Worker", "state": "ALIVE", "node_id": "n1", "pid": 7, "required_resources": {"CPU": 1.0}},
        {"class_name": "Worker", "state": "PENDING_CREATION", "node_id": None, "pid": 0},
        {"class_name": "Worker", "state": "DEAD", "node_id": "n1", "pid": 5},
    ],
}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # the base class' name
        if self.headers.get("Authorization") != "Bearer secret":
            self.send_error(401)
            return
        what = self.path.split("?")[0].removeprefix("/api/v0/")
        body = json.dumps({"result": True, "data": {"result": {"total": 1, "result": ANSWERS[what]}}}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Nothing."""


@pytest.fixture
def ray_dashboard() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_nodes_and_living_actors(ray_dashboard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    state = read_cluster(ray_dashboard)
    head, dead = state.nodes
    assert (head.name, head.alive, head.head, head.devices["GPU"]) == ("10.0.0.1", True, True, 1.0)
    assert (dead.alive, dead.why) == (False, "missed heartbeats")
    assert [(actor.state, actor.node, actor.pid) for actor in state.actors] == [
        ("ALIVE", "10.0.0.1", 7),
        ("PENDING_CREATION", "-", 0),
    ]


def test_why_it_cannot_be_read(ray_dashboard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    with pytest.raises(ServiceError, match="answers 401"):
        read_cluster(ray_dashboard)
    with pytest.raises(ServiceError, match="refused"):
        read_cluster("http://127.0.0.1:9")
    with pytest.raises(ServiceError, match="neither http"):
        read_cluster("head:6379")
