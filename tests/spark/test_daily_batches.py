"""A scheduler's committed batch is killed at random moments and run again until it ends well: each row once."""

import os
import random
import shutil
from pathlib import Path

import pytest

from pyrmq_core.blocking import Admin, PullConsumer
from tests.spark.daily_job import ROWS_A_DAY
from tests.support.our_cluster import boot_our_cluster
from tests.support.soaking import Driver, committed_rows, held, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.soak]

SECONDS = 240.0


@pytest.mark.timeout(5400)
@pytest.mark.parametrize("kills", [3, 50])
def test_each_row_once_over_kills(tmp_path: Path, kills: int) -> None:
    """PYRMQ_SEED repeats a run's choices, though not its moments."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java here; install a JDK 17 or 21")
    seed = int(os.environ.get("PYRMQ_SEED") or random.SystemRandom().getrandbits(32))
    print(f"PYRMQ_SEED={seed}", flush=True)  # noqa: T201 - what a failed run is repeated with
    chance = random.Random(seed)
    with boot_our_cluster() as cluster:
        nameserver = cluster.nameserver.address
        with Admin(nameserver=nameserver) as admin, PullConsumer("audit", nameserver=nameserver) as consumer:
            admin.create_topic("days", queues=2)
            driver = Driver(nameserver, tmp_path, "tests.spark.daily_job")
            days = left = 0
            try:
                left = kills
                while left:
                    (tmp_path / "day").write_text(f"{days}")
                    driver.start()
                    before = held(consumer, "days") or 0
                    enough = before + chance.randrange(1, ROWS_A_DAY + ROWS_A_DAY // 5)
                    wait_until(
                        lambda: driver.has_ended or (held(consumer, "days") or 0) >= enough,  # noqa: B023 - of this turn
                        SECONDS,
                        lambda: f"day {days}: {driver.log.read_text(errors='replace')[-3000:]}",  # noqa: B023
                    )
                    if driver.has_ended_well:
                        days += chance.random() < 0.7  # else the day runs once more, and writes nothing
                    else:
                        driver.kill()
                        left -= 1
                driver.start()
                wait_until(lambda: driver.has_ended, SECONDS, lambda: f"day {days} did not end")
                assert driver.has_ended_well
            finally:
                driver.end()
            rows = committed_rows(consumer, "days")
            assert sorted(map(int, rows)) == list(range((days + 1) * ROWS_A_DAY))
            repeats = (held(consumer, "days") or 0) - len(rows)
            print(f"{days + 1} days, {kills} kills, {repeats} rows beside those that count", flush=True)  # noqa: T201
