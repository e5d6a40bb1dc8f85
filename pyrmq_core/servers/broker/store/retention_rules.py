"""The rules of retention: when old segments of the commit log are removed, and when a full disk refuses sends.

The percentages are the used part of the file system, rounded as in RocketMQ:

    above                          by default
    diskMaxUsedSpaceRatio          75 %    segments older than fileReservedTime are removed, at any hour
    diskSpaceCleanForciblyRatio    85 %    segments of any age are removed (cleanFileForciblyEnable)
    diskSpaceWarningLevelRatio     90 %    sends are refused, too

Source: store/DefaultMessageStore.java, CleanCommitLogService (5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.servers.broker.store.disk.files import DiskSpace

HOUR_MS: Final = 3_600_000
# RocketMQ replaces a percentage outside these bounds by the nearest bound.
MAX_USED_RANGE: Final = (10, 95)
CLEAN_RANGE: Final = (30, 85)
WARNING_RANGE: Final = (35, 90)


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """The settings of retention. Segments older than `reserved_ms` are removed at the `hours` of the day.

    The percentages are parts of the disk that are in use. Above `max_used_percent` old segments are removed at any
    hour. Above `clean_percent` segments are removed whatever their age, if `is_forcible`. Above `warning_percent` sends
    are refused. A `max_store_bytes` above 0 limits the size of the store.
    """

    reserved_ms: int
    hours: frozenset[int]
    max_used_percent: int
    clean_percent: int
    warning_percent: int
    is_forcible: bool
    max_store_bytes: int
    segment_bytes: int


class Judgement(NamedTuple):
    """The decision of one round of retention about removing old segments and refusing sends.

    `cleans` is True if old segments must be removed, `at_once` if segments of any age must be removed, and `is_full` if
    sends must be refused. `used_percent` is that of the fullest file system.
    """

    cleans: bool
    at_once: bool
    is_full: bool
    used_percent: int


def hours_of(text: str) -> frozenset[int]:
    """Parses the hours in deleteWhen, numbers separated by `;`. Raises `InvalidArgument` for anything else.

    A number above 23 is no hour of the day: 99 disables the removal by hour, as in RocketMQ.
    """
    try:
        return frozenset(int(hour) for hour in text.split(";") if hour.strip())
    except ValueError as error:
        raise InvalidArgument(f"deleteWhen is {text!r}; it is an hour of the day, or several: 04 or 04;16") from error


def percent_within(value: int, limits: tuple[int, int]) -> int:
    return min(max(value, limits[0]), limits[1])


def judge(
    rules: RetentionRules, hour: int, spaces: Iterable[DiskSpace], store_bytes: int, *, by_hand: bool
) -> Judgement:
    """Decides whether to remove old segments and to refuse sends, by the hour of the day and the space on the disks.

    `spaces` are the file systems of log and queues, `store_bytes` is the size of the store. With `by_hand`, for an
    administrator's request, old segments are removed at any hour. If `max_store_bytes` is set, a file system with
    enough free space for a store of that size is ignored.
    """
    needed = max(rules.max_store_bytes - store_bytes, rules.segment_bytes)
    used = max(
        (space.used_percent for space in spaces if not rules.max_store_bytes or space.usable < needed),
        default=0,
    )
    is_short = used > min(rules.max_used_percent, rules.clean_percent, rules.warning_percent)
    return Judgement(
        cleans=by_hand or hour in rules.hours or is_short,
        at_once=rules.is_forcible and used > min(rules.clean_percent, rules.warning_percent),
        is_full=used > rules.warning_percent,
        used_percent=used,
    )


def may_go(rules: RetentionRules, judgement: Judgement, modified_ms: int, now_ms: int) -> bool:
    return judgement.cleans and (judgement.at_once or now_ms >= modified_ms + rules.reserved_ms)


def is_above_size(rules: RetentionRules, store_bytes: int) -> bool:
    return 0 < rules.max_store_bytes < store_bytes
