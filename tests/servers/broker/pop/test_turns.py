"""Acknowledgements and extensions behind many pops on one connection are answered before the work of those pops."""

from dataclasses import replace
from pathlib import Path

import pytest
import trio

from pyrmq_core.network import parse_address
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import FrameDecoder, encode_frame
from pyrmq_core.protocol.requests.pop.settle import AckMessage, BatchAckMessage, ChangeInvisibleTime, ack_entries
from tests.servers.broker.pop.popping import BROKER, pop, pop_message
from tests.servers.broker.serving import Served, message, serving, until

POPS = 60
POPPED_AHEAD = 10


async def settling(served: Served) -> list[Command]:
    """Returns the requests that settle three popped messages: by an acknowledgement, in a batch, by an extension."""
    for number in range(3):
        await served.send("T", b"%d" % number)
    first, second, third = [each.receipt for each in await pop(served)]
    return [
        AckMessage("G", "T", first.queue_id, first.encode(), first.queue_offset).to_command(),
        BatchAckMessage(BROKER, ack_entries("T", "G", [second])).to_command(),
        ChangeInvisibleTime("G", "T", third.queue_id, third.encode(), third.queue_offset, 60_000).to_command(),
    ]


async def answers_to(
    stream: trio.SocketStream, decoder: FrameDecoder, requests: list[Command], count: int
) -> list[Command]:
    await stream.send_all(b"".join(map(encode_frame, requests)))
    answers: list[Command] = []
    with trio.fail_after(60):
        while len(answers) < count:
            while (answer := decoder.next_command()) is not None:
                answers.append(answer)
            if len(answers) < count:
                decoder.feed(await stream.receive_some())
    return answers


def numbered(first: int, requests: list[Command]) -> list[Command]:
    return [replace(request, opaque=first + at) for at, request in enumerate(requests)]


@pytest.mark.parametrize("is_woken", [False, True])
async def test_what_settles_messages_does_not_wait_for_the_pops_before_it(tmp_path: Path, is_woken: bool) -> None:
    async with serving(tmp_path) as served:
        settles = numbered(1000, await settling(served))
        pops = numbered(0, [pop_message(messages=1, poll_time_ms=20_000).to_command() for _ in range(POPS)])
        sends = numbered(2000, [message("T").to_command() for _ in range(POPS)])
        stream, decoder = await trio.open_tcp_stream(*parse_address(served.running.address)), FrameDecoder()
        async with stream:
            if is_woken:
                held = served.running.broker.deliveries.reviver.waits.held
                await stream.send_all(b"".join(map(encode_frame, pops)))
                await until(lambda: held.count == POPS)
                answers = await answers_to(stream, decoder, sends + settles, 2 * POPS + 3)
            else:
                for _ in range(POPS):
                    await served.send("T")
                answers = await answers_to(stream, decoder, pops + settles, POPS + 3)
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        order = [answer.opaque for answer in answers if answer.opaque < 2000]
        assert {number for number in order[: POPPED_AHEAD + 3] if number >= 1000} == {1000, 1001, 1002}
