"""Bodies that a decoder lends: what they show never changes, and the memory behind them is used again and bounded."""

from __future__ import annotations

import random
from collections import deque

import pytest

from pyrmq_core.protocol.framing.command import RESPONSE_BIT, Command
from pyrmq_core.protocol.framing.frame import (
    EARLIER_BYTES,
    LENT_BUFFER_BYTES,
    LENT_FROM_BYTES,
    MAX_FRAME_BYTES,
    MOST_LENT_BYTES,
    FrameDecoder,
    encode_frame,
)

KIB = 1024


def lending() -> FrameDecoder:
    decoder = FrameDecoder()
    decoder.lends = True
    return decoder


def answer(number: int, body: bytes) -> Command:
    return Command(0, {}, body, opaque=number, flag=RESPONSE_BIT)


def taken(decoder: FrameDecoder) -> list[Command]:
    return list(iter(decoder.next_command, None))


@pytest.mark.parametrize("seed", range(6))
def test_views_keep_their_bytes_whatever_comes_behind_them(seed: int) -> None:
    """Some are dropped at once, others live on; the stream is cut anywhere."""
    chance = random.Random(seed)
    decoder, kept = lending(), deque[tuple[bytes | memoryview, bytes]]()
    largest = chance.choice((6 * KIB, 40 * KIB, 1200 * KIB))
    bodies = [
        chance.randbytes(chance.choice((0, 10, LENT_FROM_BYTES - 1, LENT_FROM_BYTES, largest))) for _ in range(90)
    ]
    stream, at, number = b"".join(encode_frame(answer(*numbered)) for numbered in enumerate(bodies)), 0, 0
    while at < len(stream):
        room = decoder.room()
        count = min(len(room), len(stream) - at, chance.choice((1, 7, 3000, 300 * KIB)) if at % 5 else 300 * KIB)
        room[:count] = stream[at : at + count]
        room.release()
        decoder.received(count)
        at += count
        for command in taken(decoder):
            assert command.opaque == number
            assert isinstance(command.body, memoryview) == (len(bodies[number]) >= LENT_FROM_BYTES)
            kept.append((command.body, bodies[number]))
            number += 1
        while kept and chance.random() < 0.4:
            kept.popleft()
        assert all(view == body for view, body in kept)
    assert number == len(bodies)
    assert decoder.buffered_bytes == 0


def test_memory_is_used_again_when_no_view_is_left() -> None:
    decoder, places = lending(), set()
    frame = encode_frame(answer(1, bytes(40 * KIB)))
    for _ in range(400):
        decoder.feed(frame)
        (command,) = taken(decoder)
        assert isinstance(command.body, memoryview)
        places.add(id(command.body.obj))
    assert len(places) <= 4
    assert decoder.held_bytes <= 4 * LENT_BUFFER_BYTES


@pytest.mark.parametrize("body_bytes", [40 * KIB, 1100 * KIB, MAX_FRAME_BYTES - 200])
def test_a_decoder_holds_a_bounded_memory_though_all_views_live_on(body_bytes: int) -> None:
    decoder, frame = lending(), encode_frame(answer(1, bytes(body_bytes)))
    views = []
    for _ in range(max(3, 24 * 1024 * KIB // body_bytes)):
        decoder.feed(frame)
        views += [command.body for command in taken(decoder)]
        assert decoder.held_bytes <= EARLIER_BYTES + max(MOST_LENT_BYTES, 2 * MAX_FRAME_BYTES)
    decoder.give_back()
    assert decoder.held_bytes == 0
    assert all(len(view) == body_bytes for view in views)


def test_a_decoder_that_does_not_lend_gives_bytes() -> None:
    decoder = FrameDecoder()
    decoder.feed(encode_frame(answer(1, bytes(40 * KIB))))
    assert type(taken(decoder)[0].body) is bytes
