"""The start and end of a read in options: words, times, or JSON of offsets by topic, broker and queue.

    {"orders": {"broker-a": {"0": 23, "1": -2}}, "audit": "earliest"}        -2 earliest, -1 latest

The three levels are topic, broker and queue. A topic's value may be one word (or one time) for all of its queues.
`offsets` turns positions into offsets. The rules follow Spark's Kafka source (JsonUtils.scala).
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn

from pyrmq_core import MessageQueue
from pyrmq_spark.spark_errors import InvalidOffsets

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1
# The greatest offset or time in ms: both are Java longs.
MAX_LONG: Final = 2**63 - 1
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
QUEUE_ID: Final = re.compile("0|[1-9][0-9]{0,9}")
NUMBER: Final = re.compile("-?[0-9]{1,20}")


class Word(enum.Enum):
    """A position as a word, such as `earliest`."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The position of the first message stored at or after a time in milliseconds since 1970."""

    ms: int


Point = int | Word | AtTime
"""The start or the end of a read in one queue: an offset, a word such as `earliest`, or a time."""


@dataclass(frozen=True, slots=True)
class PerQueue:
    """A point for each queue, set for the queue itself or for all queues of its topic."""

    queues: Mapping[MessageQueue, Point]
    topics: Mapping[str, Point]


Position = Word | AtTime | PerQueue


# Times from 2001 to 2099 in seconds. As milliseconds they would be in early 1970, which is refused as a mistake.
FIRST_SECONDS: Final = 1_000_000_000
LAST_SECONDS: Final = 4_102_444_800


def parse_start(text: str, option: str) -> Position:
    """Parses `earliest`, `latest`, `committed`, or the JSON form. Raises `InvalidOffsets`, which names the fault."""
    return _parse_offsets(text, option, (Word.EARLIEST, Word.LATEST, Word.COMMITTED))


def parse_end(text: str, option: str) -> Position:
    """Parses `latest`, or the JSON form. Raises `InvalidOffsets` for any other text, and for `earliest` in the JSON."""
    return _parse_offsets(text, option, (Word.LATEST,))


def parse_time(text: str, option: str) -> AtTime:
    """Parses milliseconds since 1970, or ISO-8601 with its offset: `2026-11-21T09:30:00+01:00`.

    Raises `InvalidOffsets` for any other text.
    """
    return AtTime(_milliseconds(text, option))


def parse_times(text: str, option: str) -> Position:
    """Parses JSON with a time for each queue, or for all queues of a topic. Raises `InvalidOffsets` for other texts."""
    return _per_queue(text, option, lambda value, where: AtTime(_milliseconds(value, f"{option}, {where}")))


def parse_assign(text: str, option: str) -> tuple[MessageQueue, ...]:
    """Parses `{"orders": {"broker-a": [0, 1]}}`. Returns the queues sorted, each once, or raises `InvalidOffsets`."""
    queues: list[MessageQueue] = []
    for topic, brokers in _json_object(text, option).items():
        if not isinstance(brokers, dict) or not brokers:
            if isinstance(brokers, list):
                _refuse_kafkas_form(option, text, topic, "0")
            _refuse(option, text, f'topic {topic} needs brokers with lists of queues, {{"broker-a": [0, 1]}}')
        for broker_name, queue_ids in brokers.items():
            if not isinstance(queue_ids, list) or not all(_is_queue_id(queue_id) for queue_id in queue_ids):
                _refuse(option, text, f"{topic}/{broker_name} needs a list of queue ids such as [0, 1]")
            queues += [MessageQueue(topic, broker_name, queue_id) for queue_id in queue_ids]
    if not queues:
        _refuse(option, text, "it names no queue")
    return tuple(sorted(set(queues)))


def _parse_offsets(text: str, option: str, words: tuple[Word, ...]) -> Position:
    stripped = text.strip()
    if stripped.startswith("{"):
        return _per_queue(stripped, option, lambda value, where: _offset_point(value, where, option, words))
    return _word(stripped, option, words)


def _word(text: str, option: str, words: tuple[Word, ...]) -> Word:
    for word in words:
        if text.lower() == word.value:
            return word
    expected = ", ".join(word.value for word in words)
    raise InvalidOffsets(
        f"option {option} is {text!r}; write {expected}, or JSON of offsets by topic, broker and queue"
    )


def _offset_point(value: object, where: str, option: str, words: tuple[Word, ...]) -> Point:
    if isinstance(value, str):
        return _word(value, f"{option}, {where}", words)
    if isinstance(value, bool) or not isinstance(value, int) or not EARLIEST_OFFSET <= value <= MAX_LONG:
        raise InvalidOffsets(
            f"option {option}, {where}: {json.dumps(value)} is no offset; it is a whole number, "
            f"{EARLIEST_OFFSET} for earliest, {LATEST_OFFSET} for latest"
        )
    if value == EARLIEST_OFFSET and Word.EARLIEST not in words:
        raise InvalidOffsets(f"option {option}, {where}: a read cannot end at earliest ({EARLIEST_OFFSET})")
    return {EARLIEST_OFFSET: Word.EARLIEST, LATEST_OFFSET: Word.LATEST}.get(value, value)


def _milliseconds(value: object, where: str) -> int:
    text = value.strip() if isinstance(value, str) else json.dumps(value)
    if not isinstance(value, int | str):
        return _refuse_time(text, where)
    if NUMBER.fullmatch(text):
        ms = int(text)
        if FIRST_SECONDS <= ms < LAST_SECONDS:
            as_seconds = datetime.fromtimestamp(ms, UTC).isoformat()
            raise InvalidOffsets(
                f"option {where}: {text} are milliseconds of the year 1970; as seconds it is {as_seconds}: append 000"
            )
        return ms if 0 <= ms <= MAX_LONG else _refuse_time(text, where)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _refuse_time(text, where)
    if moment.utcoffset() is None:
        raise InvalidOffsets(
            f"option {where}: {text!r} does not say in which time zone; append its offset, as in {text}+00:00"
        )
    return max(0, (moment - EPOCH) // MILLISECOND)


def _refuse_time(text: str, where: str) -> NoReturn:
    raise InvalidOffsets(
        f"option {where}: {text!r} is no time; write milliseconds since 1970, or ISO-8601 with its offset "
        "(2026-11-21T09:30:00+01:00)"
    )


def _per_queue(text: str, option: str, point: Callable[[object, str], Point]) -> PerQueue:
    queues: dict[MessageQueue, Point] = {}
    topics: dict[str, Point] = {}
    for topic, brokers in _json_object(text, option).items():
        if not isinstance(brokers, dict):
            topics[topic] = point(brokers, topic)
            continue
        for broker_name, offsets in brokers.items():
            if not isinstance(offsets, dict):
                _refuse_kafkas_form(option, text, topic, broker_name)
                _refuse(option, text, f'{topic}/{broker_name} needs its queues, {{"0": ..., "1": ...}}')
            for queue_id, value in offsets.items():
                if not QUEUE_ID.fullmatch(queue_id) or not _is_queue_id(int(queue_id)):
                    _refuse(option, text, f"{topic}/{broker_name} has the queue {queue_id!r}; queue ids count from 0")
                queue = MessageQueue(topic, broker_name, int(queue_id))
                queues[queue] = point(value, str(queue))
    return PerQueue(queues, topics)


def _refuse_kafkas_form(option: str, text: str, topic: str, broker_name: str) -> None:
    """Raises `InvalidOffsets` for a number in place of a broker's name: Kafka's JSON has no level of brokers."""
    if broker_name.isdecimal():
        form = "[0, 1]" if option == "assign" else '{"0": ...}'
        _refuse(
            option,
            text,
            f"topic {topic} has partitions as in Kafka's form, and a level for brokers is missing: RocketMQ counts the "
            f'queues of each broker from 0, {{"{topic}": {{"broker-a": {form}}}}}',
        )


def _json_object(text: str, option: str) -> dict[str, Any]:
    """Returns the JSON object in `text`. Refuses an object that has a name twice, since one value would be lost."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                _refuse(option, text, f"{name!r} stands in it twice")
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        _refuse(option, text, f"that is no JSON: {error.msg} at character {error.pos + 1}")
    except RecursionError:
        _refuse(option, text, "that is nested too deeply")
    except InvalidOffsets:
        raise
    except ValueError:  # raised for a number with thousands of digits
        _refuse(option, text, "that holds a number that is too long")
    if not isinstance(value, dict) or not value:
        _refuse(option, text, "a JSON object with at least one topic is needed")
    return value


def _refuse(option: str, text: str, why: str) -> NoReturn:
    raise InvalidOffsets(f"option {option} is {_shortened(text)}: {why}")


def _shortened(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:197]}..."


def _is_queue_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def shown(point: Point) -> str:
    match point:
        case AtTime(ms):
            try:
                return f"{datetime.fromtimestamp(ms / 1000, UTC).isoformat()} ({ms} ms)"
            except (OverflowError, ValueError, OSError):
                return f"{ms} ms"
        case Word():
            return point.value
        case _:
            return f"offset {point}"
