"""A parser of outside input with real inputs for it, ways to spoil them, and what no input may do."""

from __future__ import annotations

import json
import random
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyrmq_core.errors import RocketMQError

# Decompression may swell to its own bound; any parser may take this much besides.
FIXED_BYTES = 4 << 20
MEMORY_FACTOR = 8
CORPUS_FILE = Path(__file__).parent / "corpus.json"
# Tokens that spoil a text or a structure more than a flipped bit does.
TOKENS = (
    b"\xff" * 4,
    bytes(4),
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"[" * 40,
    b'{"a":' * 40,
    b'"\\ud800"',
    b"-1",
    b"9" * 30,
    b"1e999",
    b"\x01",
    b"\x02",
    b"../../",
    b"\n",
    b"\0",
    b"' OR (",
    b"((((((",
    b" AND ",
    b"null",
)


@dataclass(frozen=True)
class Target:
    """A parser; it accepts each of `seeds`, and a growing input repeats `unit` between head and tail."""

    parse: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    head: bytes = b""
    unit: bytes = b""
    tail: bytes = b""

    def grown(self, count: int) -> bytes:
        return self.head + self.unit * count + self.tail


def survives(target: Target, data: bytes) -> None:
    """Parses the input; any error but a named one fails."""
    try:
        target.parse(data)
    except RocketMQError:
        pass
    except RecursionError as error:
        raise AssertionError(f"{data[:200]!r}... recursed too deeply") from error


def read_corpus() -> dict[str, list[bytes]]:
    """Returns by target the inputs that `make fuzz` kept: they reach lines that no real input reaches."""
    kept = json.loads(CORPUS_FILE.read_text())
    return {name: [b64decode(data) for data in inputs] for name, inputs in kept.items()}


def keep_corpus(corpus: Mapping[str, Iterable[bytes]]) -> None:
    kept = {name: [b64encode(data).decode() for data in corpus[name]] for name in sorted(corpus)}
    part = CORPUS_FILE.with_suffix(".part")
    part.write_text(json.dumps(kept, indent=0) + "\n")
    part.replace(CORPUS_FILE)


CORPUS = read_corpus()


def spoiled(seed: bytes, draw: random.Random) -> bytes:
    """Returns the input after one to four changes, of bits, lengths, places or tokens."""
    data = bytearray(seed)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(6):
            case 0 if data:
                data[at - 1] ^= 1 << draw.randrange(8)
            case 1:
                del data[at : at + draw.randint(1, 64)]
            case 2:
                data[at:at] = data[max(0, at - draw.randint(1, 64)) : at]
            case 3:
                token = draw.choice(TOKENS)
                data[at : at + len(token)] = token
            case 4:
                data[at:at] = draw.choice(TOKENS)
            case _:
                other = draw.randrange(len(data) + 1)
                data[at : at + 8] = data[other : other + 8]
    return bytes(data)
