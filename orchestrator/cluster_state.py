"""What a Ray cluster has and does, from the HTTP interface of its dashboard (by default port 8265): no Ray needed here.

Ray's state API answers `GET /api/v0/nodes` and `/api/v0/actors` with lists of plain data. A cluster that asks for a
token gets the one in `RAY_AUTH_TOKEN`.
"""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import ServiceError

_SECONDS = 3.0
_MOST = 1_000
"""Entries in one answer."""


@dataclass(frozen=True, kw_only=True)
class NodeState:
    """One machine of the cluster."""

    name: str
    alive: bool
    head: bool
    devices: Mapping[str, float]
    """CPUs, GPUs and memory in bytes, by Ray's names."""
    why: str
    """Why it is dead, or empty."""


@dataclass(frozen=True, kw_only=True)
class ActorState:
    """One actor."""

    kind: str
    state: str
    """Ray's word: ALIVE, PENDING_CREATION, RESTARTING, DEAD."""
    node: str
    pid: int | None
    needs: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """Nodes and actors at one moment."""

    nodes: tuple[NodeState, ...]
    actors: tuple[ActorState, ...]
    """Those that are not dead."""


def read_cluster(address: str) -> ClusterState:
    """Ask the dashboard at `address`, such as `http://head:8265`; a `ServiceError` says why it does not answer."""
    nodes = {str(plain["node_id"]): _node(plain) for plain in _list(address, "nodes")}
    names = {node_id: node.name for node_id, node in nodes.items()}
    actors = [_actor(plain, names) for plain in _list(address, "actors") if plain.get("state") != "DEAD"]
    return ClusterState(nodes=tuple(nodes.values()), actors=tuple(actors))


def _list(address: str, what: str) -> list[Mapping[str, Any]]:
    url = f"{address.rstrip('/')}/api/v0/{what}?limit={_MOST}&detail=1"
    token = os.environ.get("RAY_AUTH_TOKEN")
    try:
        if not url.startswith(("http://", "https://")):
            raise ValueError("it begins with neither http:// nor https://")
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            plain = json.load(answer)
        found: list[Mapping[str, Any]] = plain["data"]["result"]["result"]
        return found
    except urllib.error.HTTPError as error:
        raise ServiceError(f"Ray's dashboard at {address} answers {error.code} {error.reason}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "reason", None) or error
        raise ServiceError(
            f"Ray's dashboard at {address} cannot be read ({reason}); give the address that `ray start` printed"
        ) from error


def _node(plain: Mapping[str, Any]) -> NodeState:
    return NodeState(
        name=str(plain.get("node_name") or plain["node_id"]),
        alive=plain.get("state") == "ALIVE",
        head=bool(plain.get("is_head_node")),
        devices={key: float(value) for key, value in (plain.get("resources_total") or {}).items()},
        why=str(plain.get("state_message") or ""),
    )


def _actor(plain: Mapping[str, Any], names: Mapping[str, str]) -> ActorState:
    return ActorState(
        kind=str(plain.get("class_name", "")),
        state=str(plain.get("state", "")),
        node=names.get(str(plain.get("node_id")), "-"),
        pid=plain.get("pid"),
        needs={key: float(value) for key, value in (plain.get("required_resources") or {}).items()},
    )
