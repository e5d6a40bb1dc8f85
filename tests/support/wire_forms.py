"""Forms of the wire that the product reads but does not write, or writes but does not read."""

from __future__ import annotations

import struct
from typing import NamedTuple

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fields import encode_fields
from pyrmq_core.protocol.requests.broker.send_message import V1_NAMES, SendMessage


class UniqueId(NamedTuple):
    ip: bytes
    pid: int
    discriminator: int
    month_ms: int
    counter: int


def decode_unique_id(text: str) -> UniqueId:
    raw = bytes.fromhex(text)
    return UniqueId(raw[:-12], *struct.unpack(">HIIH", raw[-12:]))


def send_of_code_10(send: SendMessage) -> Command:
    """Returns a send as code 10, whose fields have long names: clients send code 310, with names of one letter."""
    fields = {V1_NAMES[letter]: text for letter, text in encode_fields(send).items()}
    return Command(RequestCode.SEND_MESSAGE, fields, send.body)


def read_message_offsets(text: str) -> dict[tuple[str, int], tuple[int, ...]]:
    """Returns the offsets of each queue's messages in the answer to a pop, by the topic's mark and the queue's id."""
    rows = [entry.split(" ") for entry in text.split(";") if entry]
    return {(mark, int(queue)): tuple(map(int, numbers.split(","))) for mark, queue, numbers in rows}
