"""What happens to the database that a study is kept in: killed and started again, or silent for a while."""

import signal
import time

from harness.round import Round
from tests.services import Postgres


def database_killed(round_: Round) -> None:
    """SIGKILL to PostgreSQL and all below it, once or twice: the driver waits, and goes on by itself."""
    database = _database(round_)
    driver = round_.start()
    for _ in range(round_.random.choice((1, 2))):
        round_.await_moment(driver)
        round_.keep()
        database.kill()
        time.sleep(round_.random.uniform(0, 4))
        database.start()
    round_.expect_exit(driver, 0)
    round_.finish()


def database_frozen(round_: Round) -> None:
    """PostgreSQL does not answer for some seconds."""
    database = _database(round_)
    driver = round_.start()
    round_.await_moment(driver)
    round_.keep()
    database.send(signal.SIGSTOP)
    try:
        time.sleep(round_.random.uniform(4, 8))
    finally:
        database.send(signal.SIGCONT)
    round_.expect_exit(driver, 0)
    round_.finish()


def _database(round_: Round) -> Postgres:
    assert round_.database is not None, "the study is kept in a database"
    return round_.database
