"""The share of a busy process that deliveries may take, on clocks that stand still until they are set."""

from orchestrator.tracking.pace import Pace


class Clocks:
    """Seconds of wall time, of the process's processors, and of the thread that delivers."""

    def __init__(self) -> None:
        self.wall = self.process = self.thread = 0.0

    def pass_by(self, wall: float, ours: float, others: float) -> None:
        self.wall += wall
        self.thread += ours
        self.process += ours + others


def pace_of(clocks: Clocks) -> Pace:
    return Pace(
        gather=1.0,
        share=0.05,
        wall=lambda: clocks.wall,
        process=lambda: clocks.process,
        thread=lambda: clocks.thread,
    )


def test_a_cheap_delivery_waits_no_longer_than_things_need_to_gather() -> None:
    clocks = Clocks()
    pace = pace_of(clocks)
    clocks.pass_by(1.0, ours=0.01, others=1.0)
    assert pace.pause() == 1.0


def test_an_idle_process_is_not_spared() -> None:
    """Workers train in other processes: the driver has nothing better to do."""
    clocks = Clocks()
    pace = pace_of(clocks)
    clocks.pass_by(1.0, ours=0.9, others=0.01)
    assert pace.pause() == 1.0


def test_a_busy_process_keeps_its_share_in_the_long_run() -> None:
    clocks = Clocks()
    pace = pace_of(clocks)
    spent = 0.0
    for cost in (0.1, 0.3, 0.02, 0.5, 0.2, 0.4):
        clocks.pass_by(cost, ours=cost, others=cost)  # two threads on two cores, while it delivers
        pause = pace.pause()
        clocks.pass_by(pause, ours=0.0, others=pause)
        spent += cost
    assert spent / clocks.wall <= 0.05


def test_a_process_that_others_crowd_out_keeps_its_share_too() -> None:
    """It gets a quarter of a processor, and so does the thread."""
    clocks = Clocks()
    pace = pace_of(clocks)
    spent = 0.0
    for cost in (0.1, 0.2, 0.1, 0.3):
        clocks.pass_by(4 * cost, ours=cost, others=cost)
        pause = pace.pause()
        clocks.pass_by(pause, ours=0.0, others=pause / 4)
        spent += cost
    assert spent / clocks.wall <= 0.05


def test_a_very_long_delivery_does_not_silence_tracking_for_minutes() -> None:
    clocks = Clocks()
    pace = pace_of(clocks)
    clocks.pass_by(60.0, ours=60.0, others=60.0)
    assert pace.pause() == 10.0
