"""The Ray cluster that attempts run on: joined or started, its nodes, and how many attempts of one size fit on them."""

import logging
import os
import secrets
from typing import Any

import ray
from ray.exceptions import RayError

from orchestrator.errors import ResourceError, ServiceError

_OBJECT_STORE_BYTES = 256 * 1024 * 1024
"""Only small plain data travels; token shards are read from files."""
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # an actor that reserves no GPU sees none
    "RAY_worker_niceness": "0",  # a latency measured at low priority is somebody else's
}
_MODE, _TOKEN, _TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
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
            return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
    return node_id


def node_is_dead(node_id: str) -> bool:
    """Whether the cluster has declared a node dead."""
    return any(node["NodeID"] == node_id and not node["Alive"] for node in _nodes())


def has_gpus() -> bool:
    """Whether any living node has one."""
    return any(resources.get("GPU", 0) for resources in _resources())


def slots(cpus: float, gpus: float) -> int:
    """How many attempts of this size the living nodes have room for at once."""
    return sum(_fit(resources, cpus, gpus) for resources in _resources())


def require_room(cpus: float, gpus: float) -> int:
    """The slots; a size that fits on no node is refused with what there is."""
    room = slots(cpus, gpus)
    if room < 1:
        raise ResourceError(
            f"resources.train asks for {size(cpus, gpus)}, and no node has them (nodes: {what_there_is()}); "
            "ask for less or give --address of a larger cluster"
        )
    return room


def size(cpus: float, gpus: float) -> str:
    """An attempt's size in words."""
    return f"{cpus:g} CPUs and {gpus:g} GPUs"


def what_there_is() -> str:
    """The living nodes' devices in words."""
    have = [f"{each.get('CPU', 0):g} CPUs, {each.get('GPU', 0):g} GPUs" for each in _resources()]
    return "; ".join(have) or "no node"


def _fit(resources: dict[str, float], cpus: float, gpus: float) -> int:
    """Attempts on one node. Several share a GPU, but no attempt is split over parts of GPUs: Ray places it on one."""
    by_cpu = _times(resources.get("CPU", 0), cpus)
    whole = resources.get("GPU", 0)
    by_gpu = int(whole) * _times(1, gpus) if 0 < gpus < 1 else _times(whole, gpus)
    return int(min(by_cpu, by_gpu))


def _times(have: float, need: float) -> float:
    """How often `need` is in `have`, to Ray's own precision of a ten-thousandth; without end for nothing."""
    return round(have * 10_000) // round(need * 10_000) if need else float("inf")


def _nodes() -> list[dict[str, Any]]:
    known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return known


def _resources() -> list[dict[str, float]]:
    return [node["Resources"] for node in _nodes() if node["Alive"]]
