"""How a trial is written down as attributes of its Optuna trial, and read back as a `TrialRecord`.

    seed, configuration, knobs             when it is asked
    proposed_by, sampler                   of a proposal; one that repeats a trial has `retries` or `forked_from`
    attempt:1, attempt:2, ...              started, ended, failure, info and devices of each execution
    rung:TOKENS                            metrics, order and verdict of the pruner
    result                                 metrics, failure and end, written just before it is told

Times are ISO 8601 in UTC, taken from the driver's clock.
"""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from orchestrator.configuration import Configuration
from orchestrator.records import AttemptRecord, RungRecord, TrialRecord, TrialState
from workers.protocol import Failure

_ATTEMPT = "attempt:"
_RUNG = "rung:"


def asked(configuration: Configuration, seed: int) -> dict[str, Any]:
    """Attributes of every new trial."""
    return {"seed": seed, "configuration": configuration.fingerprint, "knobs": dict(configuration.knobs)}


def rung_key(tokens: int) -> str:
    """The attribute that holds a rung."""
    return f"{_RUNG}{tokens}"


def rung_to_plain(rung: RungRecord) -> dict[str, Any]:
    """JSON-ready."""
    return {"metrics": dict(rung.metrics), "order": rung.order, "kept": rung.kept}


def attempt_key(number: int) -> str:
    """The attribute that holds an attempt."""
    return f"{_ATTEMPT}{number}"


def attempt_to_plain(attempt: AttemptRecord) -> dict[str, Any]:
    """JSON-ready."""
    return {
        "started": attempt.started.isoformat(),
        "ended": attempt.ended.isoformat() if attempt.ended is not None else None,
        "failure": dict(attempt.failure) if attempt.failure is not None else None,
        "info": dict(attempt.info),
        "devices": attempt.devices,
    }


def result(metrics: Mapping[str, float], ended: datetime, failure: Failure | None = None) -> dict[str, Any]:
    """What a trial is told with."""
    return {
        "metrics": dict(metrics),
        "failure": failure_to_plain(failure) if failure is not None else None,
        "ended": ended.isoformat(),
    }


def failure_to_plain(failure: Failure) -> dict[str, str]:
    """`reason`, `message` and `traceback`."""
    return {**asdict(failure), "reason": failure.reason.value}


def trial_record(
    *,
    number: int,
    state: TrialState,
    params: Mapping[str, Any],
    values: tuple[float, ...] | None,
    violations: Mapping[str, float],
    attributes: Mapping[str, Any],
) -> TrialRecord:
    """What is known of a trial; it started with its first attempt."""
    attempts = _attempts(attributes)
    rungs = _rungs(attributes)
    told = attributes.get("result", {"metrics": {}, "failure": None, "ended": None})
    return TrialRecord(
        number=number,
        state=state,
        params=dict(params),
        seed=attributes["seed"],
        configuration=attributes["configuration"],
        values=values,
        metrics=told["metrics"],
        knobs=dict(attributes["knobs"]),
        feasible=all(amount <= 0 for amount in violations.values()),
        violations=dict(violations),
        attempts=attempts,
        failure=told["failure"],
        started=attempts[0].started if attempts else None,
        ended=_time(told["ended"]),
        rungs=rungs,
        stopped_at=next((rung.tokens for rung in rungs if not rung.kept), None),
        retries=attributes.get("retries"),
        forked_from=attributes.get("forked_from"),
        sampler=attributes.get("sampler", {}),
        proposed_by=attributes.get("proposed_by"),
    )


def _rungs(attributes: Mapping[str, Any]) -> tuple[RungRecord, ...]:
    tokens = sorted(int(key.removeprefix(_RUNG)) for key in attributes if key.startswith(_RUNG))
    return tuple(RungRecord(tokens=each, **attributes[rung_key(each)]) for each in tokens)


def _attempts(attributes: Mapping[str, Any]) -> tuple[AttemptRecord, ...]:
    numbers = sorted(int(key.removeprefix(_ATTEMPT)) for key in attributes if key.startswith(_ATTEMPT))
    return tuple(_attempt(number, attributes[attempt_key(number)]) for number in numbers)


def _attempt(number: int, plain: Mapping[str, Any]) -> AttemptRecord:
    return AttemptRecord(
        number=number,
        started=datetime.fromisoformat(plain["started"]),
        ended=_time(plain["ended"]),
        failure=plain["failure"],
        info=plain["info"],
        devices=plain.get("devices", 1.0),
    )


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text is not None else None
