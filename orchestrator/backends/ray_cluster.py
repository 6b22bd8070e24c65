"""The Ray cluster that attempts run on: joined or started, its nodes, and how many attempts of one size fit on them."""

import logging
import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from orchestrator.backends.placement import Node, Placement
from orchestrator.errors import ResourceError, ServiceError

_OBJECT_STORE_BYTES = 256 * 1024 * 1024
"""Only small plain data travels; token shards are read from files."""
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # an actor that reserves no GPU sees none
    "RAY_worker_niceness": "0",  # a latency measured at low priority is somebody else's
}
_MODE, _TOKEN, _TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
_NODE_ID = "ray.io/node-id"
"""A label that every node has."""
_own_token = secrets.token_hex(32)
"""Of the clusters that this process starts; Ray keeps the first one that it reads."""


def connect(address: str | None) -> bool:
    """Join the cluster at `address` or start one here; True when this process started or joined it.

    A cluster that is started here is open to this process and its children only: its token is in their environment.
    Without one Ray would write a token to the home folder, which changes what every later `ray start` there asks for.
    """
    if ray.is_initialized():
        return False
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if address is None and not any(name in os.environ for name in (_MODE, _TOKEN, _TOKEN_PATH)):
        os.environ[_TOKEN] = _own_token
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)  # it tells that authentication is on
    try:
        ray.init(
            address=address or "local",
            include_dashboard=None if address else False,
            object_store_memory=None if address else _OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError, OSError, RayError) as error:
        where = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
        complaint = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ServiceError(f"cannot use {where}: {complaint}; try --backend local") from error
    return True


def disconnect() -> None:
    """Leave the cluster; one that was started here ends, and the environment is as before."""
    if ray.is_initialized():
        ray.shutdown()
    if os.environ.get(_TOKEN) == _own_token:
        del os.environ[_TOKEN]
        os.environ.pop(_MODE, None)  # set by Ray


def node_name(node_id: str) -> str:
    """A node's host and address, for people."""
    for node in _nodes():
        if node["NodeID"] == node_id:
            return _name(node)
    return node_id


def node_is_dead(node_id: str) -> bool:
    """Whether the cluster has declared a node dead."""
    return any(node["NodeID"] == node_id and not node["Alive"] for node in _nodes())


def living_names() -> dict[str, str]:
    """Names of the living nodes, by id."""
    return {node["NodeID"]: _name(node) for node in _nodes() if node["Alive"]}


def draining() -> frozenset[str]:
    """Ids of the living nodes that are being taken away."""
    from ray._private.state import state  # Ray Train's own watcher asks here, too

    return frozenset(state.get_draining_nodes())


def node_of(actor: Any) -> str:
    """Id of the node that an actor runs or ran on, or nothing while it has none."""
    from ray._private.state import state

    address = state.actor_table(actor._actor_id.hex()).get("Address", {})
    return str(address.get("NodeID", ""))


def elsewhere(labels: Mapping[str, str], excluded: Collection[str]) -> dict[str, str]:
    """Ray's selector of nodes with these labels that are not among some, by id."""
    return {**labels, **({_NODE_ID: f"!in({','.join(sorted(excluded))})"} if excluded else {})}


def has_gpus() -> bool:
    """Whether any living node has one."""
    return any(resources.get("GPU", 0) for resources, _ in _living())


def slots(placement: Placement, excluded: Collection[str] = ()) -> int:
    """How many attempts of this kind the living nodes, without some by id, have room for at once."""
    return placement.slots(_living(excluded))


def require_room(placement: Placement, section: str = "train") -> int:
    """The slots; what no cluster of these nodes can ever meet is refused with what there is."""
    room = slots(placement)
    if room < 1:
        have = "no node has them" if placement.workers == 1 else f"no {_together(placement)} has room for all of them"
        raise ResourceError(
            f"resources.{section} asks for {placement.wants()}, and {have} (nodes: {what_there_is()}); "
            "ask for less or give --address of a larger cluster"
        )
    return room


def _together(placement: Placement) -> str:
    return "one node" if placement.strategy == "strict_pack" else "set of nodes"


def what_there_is() -> str:
    """The living nodes' devices in words."""
    return "; ".join(_words(resources, labels) for resources, labels in _living()) or "no node"


def what_is_free() -> str:
    """What of all nodes nobody has reserved, in words."""
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return _words({name: amount for name, amount in free.items() if not name.startswith("accelerator_type:")}, {})


def meeting_address(node_ids: Sequence[str]) -> str:
    """Where the first of several workers is reached by the others, which run on these nodes."""
    addresses = [node["NodeManagerAddress"] for each in node_ids for node in _nodes() if node["NodeID"] == each]
    return "127.0.0.1" if len(set(addresses)) <= 1 else str(addresses[0])


def _words(resources: Mapping[str, float], labels: Mapping[str, str]) -> str:
    known = ("CPU", "GPU", "memory", "object_store_memory")
    own = [name for name in sorted(resources) if name not in known and not name.startswith(("node:", "bundle"))]
    more = [name if name.startswith("accelerator_type:") else f"{resources[name]:g} {name}" for name in own]
    more = [name for name in more if "_group_" not in name]
    more += [f"{name}={value}" for name, value in labels.items() if not name.startswith("ray.io/")]
    return ", ".join([f"{resources.get('CPU', 0):g} CPUs", f"{resources.get('GPU', 0):g} GPUs", *more])


def _nodes() -> list[dict[str, Any]]:
    known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return known


def _name(node: Mapping[str, Any]) -> str:
    return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"


def _living(excluded: Collection[str] = ()) -> list[Node]:
    alive = [node for node in _nodes() if node["Alive"] and node["NodeID"] not in excluded]
    return [(node["Resources"], node.get("Labels", {})) for node in alive]
