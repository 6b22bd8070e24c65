"""What happens to the processes of a Ray cluster: a worker or node is killed, a worker freezes past its lease."""

import psutil

from harness.driver import Driver, is_worker, wait_until
from harness.ray_nodes import NO_TOKEN, QUICK_TO_NOTICE, two_ray_nodes
from harness.round import Round


def worker_killed(round_: Round) -> None:
    """SIGKILL of a worker at work: the driver gives its trial another attempt and finishes by itself."""
    driver = round_.start()
    round_.await_moment(driver)
    worker = _a_worker(round_, driver)
    round_.keep()
    worker.kill()
    round_.expect_exit(driver, 0)


def worker_frozen(round_: Round) -> None:
    """SIGSTOP of a worker for longer than its lease, SIGCONT while its replacement works: what it says is too late."""
    driver = round_.start()
    round_.await_moment(driver)
    worker = _a_worker(round_, driver)
    round_.keep()
    lost = _lost_attempts(round_)
    worker.suspend()
    wait_until(lambda: driver.ended() or _lost_attempts(round_) > lost, "the end of a frozen worker's lease")
    if worker.is_running():
        worker.resume()
    round_.expect_exit(driver, 0)


def raylet_killed(round_: Round) -> None:
    """SIGKILL of the only node's raylet: the driver recovers, or says in one line that it cannot and is continued."""
    round_.environment |= QUICK_TO_NOTICE
    driver = round_.start()
    round_.await_moment(driver)
    raylets = driver.descendants(lambda title: title.endswith("/raylet"))
    round_.expect(len(raylets) == 1, f"{len(raylets)} raylets below the driver")
    round_.keep()
    raylets[0].kill()
    code = driver.wait()
    said = driver.said()
    round_.expect(code in (0, 2), f"plt ended with {code}: {said[-1500:]}")
    round_.expect("Traceback" not in said, f"the driver fell over a lost node: {said[-1500:]}")
    round_.finish()


def driver_killed(round_: Round) -> None:
    """SIGKILL of the driver; its cluster goes with it, and a new one continues."""
    driver = round_.start()
    round_.await_moment(driver)
    driver.kill()
    round_.keep()
    round_.finish()


def node_lost(round_: Round) -> None:
    """SIGKILL of one of the raylets of a cluster of two: what ran there goes on elsewhere."""
    nodes = round_.resources.enter_context(two_ray_nodes(round_.environment))
    round_.environment |= NO_TOKEN
    round_.backend = [f"--address={nodes.address}"]
    driver = round_.start()
    round_.await_moment(driver)
    round_.keep()
    nodes.kill_second()
    round_.expect_exit(driver, 0)
    round_.end_processes()


def _a_worker(round_: Round, driver: Driver) -> psutil.Process:
    workers: list[psutil.Process] = []

    def found() -> bool:
        workers[:] = driver.descendants(is_worker)
        return driver.ended() or bool(workers)

    wait_until(found, "a worker")
    round_.expect(bool(workers), f"the driver has no worker: {driver.said()[-1500:]}")
    return round_.random.choice(sorted(workers, key=lambda process: process.pid))


def _lost_attempts(round_: Round) -> int:
    """Attempts whose worker was lost."""
    attempts = [attempt for trial in round_.place.record().trials for attempt in trial.attempts]
    return sum(attempt.failure is not None and attempt.failure["reason"] == "worker_lost" for attempt in attempts)
