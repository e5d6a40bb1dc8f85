"""Tables whose file cannot be written for a time: nothing of them is forgotten."""

import json
from pathlib import Path

import pytest

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.requests.broker.consumer_offsets import UpdateConsumerOffset
from pyrmq_core.servers.embedded.forgetful_files import ForgetfulFiles
from tests.servers.broker.serving import serving, until

OFFSETS = "config/consumerOffset.json"


async def test_offsets_whose_file_could_not_be_written_are_written_at_the_next_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []
    save = ForgetfulFiles.save

    def save_later(files: ForgetfulFiles, path: str, data: bytes, *, keep_previous: bool = True) -> None:
        if path == OFFSETS and not failed:
            failed.append(path)
            raise StoreError("the disk is full")
        save(files, path, data, keep_previous=keep_previous)

    monkeypatch.setattr(ForgetfulFiles, "save", save_later)
    async with serving(tmp_path, flushConsumerOffsetInterval="20") as served:
        await served.send("T")
        await served.pull("T")  # makes the group
        answer = await served.ask(UpdateConsumerOffset("G", "T", 0, 1).to_command())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await until(lambda: bool(failed))
        await until((tmp_path / OFFSETS).exists)
        assert json.loads((tmp_path / OFFSETS).read_text())["offsetTable"] == {"T@G": {"0": 1}}
