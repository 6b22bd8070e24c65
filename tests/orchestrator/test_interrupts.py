"""Signals ask first and stop at once the second time, and are everybody's own again afterwards."""

import signal

import pytest

from orchestrator.interrupts import Interrupts

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_and_the_second_stops(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        assert not interrupts.requested()
        signal.raise_signal(number)
        assert interrupts.requested()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


def test_afterwards_signals_mean_what_they_meant_before() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupts():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
    with pytest.raises(RuntimeError), Interrupts():
        raise RuntimeError
    assert [signal.getsignal(number) for number in SIGNALS] == before
