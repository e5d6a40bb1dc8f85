"""The fields of a form: decoded as the standard library does, but in turns."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.tools.web import application
from pyrmq_core.tools.web.application import raw_field, read_fields


@given(st.text(alphabet="ab+%=&4é1C3A9 ", max_size=40), st.integers(4, 9))
def test_any_form_reads_as_in_the_standard_library(form: str, size: int) -> None:
    sent = form.encode()
    expected = dict(parse_qsl(sent.decode(), keep_blank_values=True, errors="replace", separator="&"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(application, "SLICE_BYTES", size)
        fields = trio.run(read_fields, sent)
    fields.pop("", None)  # the library leaves out a field without a name and a value
    expected.pop("", None)
    assert fields == expected


async def test_others_have_their_turns_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "SLICE_BYTES", 300)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert (await read_fields(b"body=" + b"%41" * 2000))["body"] == "A" * 2000
        nursery.cancel_scope.cancel()
    assert turns >= 19


@pytest.mark.parametrize("fields", [application.MAX_FIELDS, application.MAX_FIELDS + 1])
async def test_many_fields(fields: int) -> None:
    form = b"&".join(b"f%d=" % number for number in range(fields))
    if fields <= application.MAX_FIELDS:
        assert len(await read_fields(form)) == fields
    else:
        with pytest.raises(InvalidArgument, match="more than 128 fields"):
            await read_fields(form)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (b"token=abc", "abc"),
        (b"a=1&token=abc&b=2", "abc"),
        (b"a=token=x&token=abc", "abc"),
        (b"token=abcdefgh", "abcde"),
        (b"xtoken=abc", ""),
        (b"token", ""),
        (b"", ""),
    ],
)
def test_a_field_as_it_was_sent(form: bytes, value: str) -> None:
    assert raw_field(form, b"token", 5) == value
