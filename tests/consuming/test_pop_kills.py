"""A work queue for minutes: workers and their broker are killed, and workers stand still beyond the invisible time.

`PYRMQ_SEED` repeats the choices of a run, which logs its own seed and what it saw (`-o log_cli=true`).
"""

from __future__ import annotations

import logging
import os
import random
from pathlib import Path

import pytest

from pyrmq_core.blocking import EmbeddedCluster, Producer
from tests.support.groups.pop_lines import acknowledged, delays, repeats
from tests.support.groups.pop_workers import SETTLE_SECONDS, TOPIC, Scene

BROKER = "broker-a"
KILLS, SECONDS = 50, 240.0
log = logging.getLogger(__name__)


@pytest.mark.soak
@pytest.mark.timeout(int(SECONDS + SETTLE_SECONDS) + 240)
def test_nothing_is_lost_by_kills_and_nothing_acknowledged_comes_again(tmp_path: Path) -> None:
    seed = int(os.environ.get("PYRMQ_SEED", random.randrange(1_000_000)))
    with (
        EmbeddedCluster(topics={TOPIC: 4}) as cluster,
        Producer("p", nameserver=cluster.nameserver) as producer,
    ):

        def restart() -> None:
            cluster.kill(BROKER)
            cluster.start(BROKER)

        scene = Scene(cluster.nameserver, tmp_path / "lines", random.Random(seed), restart)
        done = scene.live(producer, KILLS, SECONDS)
    lines = scene.lines
    late = max(seconds for seconds, _ in delays(lines, scene.troubles))
    log.info("seed %d: %d messages, %d lines, %s, latest %.1f s", seed, len(scene.sent), len(lines), done, late)
    assert sorted(scene.sent - acknowledged(lines)) == [], f"lost, seed {seed}"
    assert repeats(lines, scene.unsure, scene.troubles) == [], f"again after an acknowledgement, seed {seed}"
