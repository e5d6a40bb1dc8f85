"""The checkpoint of a master's timers, as its slave keeps it: with it the slave goes on when it is the master.

A slave has no timer log and no wheel. They are made anew from the messages in its log, and the master's checkpoint says
which of these were delivered.
"""

from __future__ import annotations

from dataclasses import replace

from pyrmq_core.broker.store.disk.files import Files
from pyrmq_core.broker.timers import timer_checkpoint, timer_log, timer_wheel
from pyrmq_core.broker.timers.timer_checkpoint import TimerCheckpoint


def keep_checkpoint(files: Files, checkpoint: TimerCheckpoint) -> None:
    """Writes and syncs the checkpoint, in any thread; raises `StoreError` if it cannot.

    Timer log and wheel of a time when this broker was the master know nothing of the messages since. A position in the
    timer log has a start miss it, and make it anew.
    """
    for path in (timer_log.FOLDER, timer_wheel.PATH):
        files.remove(path)
    kept = replace(checkpoint, log_position=max(1, checkpoint.log_position), log_end=None, precision_ms=None)
    file = files.open(timer_checkpoint.PATH, timer_checkpoint.BYTES)
    file.write(0, kept.encode())
    file.sync()
