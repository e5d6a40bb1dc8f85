"""docs/broker.md says what the broker serves, refuses and keeps: compared with the broker."""

from __future__ import annotations

from pathlib import Path

from pyrmq_core.protocol.framing.codes import REQUEST_NAMES, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.servers.broker.processors.table import FAMILIES, NOT_BUILT, families_of
from tests.servers.broker.serving import serving, until
from tests.support.broker_codes import served_requests
from tests.support.server_page import BROKER

# The codes that MQClientAPIImpl of 5.4.0 or 4.9.7 sends to brokers, for clients and mqadmin: read with javap.
SENT_TO_BROKERS = {
    *(10, 11, 12, 14, 15, 17, 18, 21, 25, 26, 28, *range(29, 39), 41, 42, 46, *range(50, 55)),
    *(200, 201, 202, 203, 204, 207, 208, 215, 222, 223, 225, 300, 303, 305, 306, 307, 308, 309, 310),
    *(314, 315, 316, 317, 320, 321, 323, 324, 325, 328, 329, 343, 345, 351, 352, 353, 354, 355, 361, 370),
    *(400, 401, 513, 902, 903, 907, 908, 1007, *range(2001, 2005), *range(3001, 3011), 5001),
    *(*range(200050, 200057), 200151),
}


def test_every_code_of_javas_clients_and_tools_is_served_or_refused_with_its_part() -> None:
    assert sorted(SENT_TO_BROKERS - served_requests() - set(NOT_BUILT)) == []


async def test_what_is_not_built_is_refused_by_name(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for code in set(NOT_BUILT) - served_requests():
            answer = await served.ask(Command(code))
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            wanted = f"{REQUEST_NAMES[code]}; this broker has no {NOT_BUILT[code]}"
            assert answer.remark is not None
            assert answer.remark.endswith(wanted)


async def test_every_file_of_a_store_is_on_the_page(tmp_path: Path) -> None:
    section = BROKER.read_text("utf-8").partition("\n## On disk\n")[2].partition("\n## ")[0]
    async with serving(tmp_path, messageDelayLevel="1s", flushConsumerOffsetInterval="10") as served:
        await served.send("T")
        await served.send("T", properties="DELAY\x011\x02")
        await served.pull("T")
        await until(lambda: "delayOffset.json" in names_in(tmp_path))
        names = names_in(tmp_path)
    assert {"commitlog", "consumequeue", "topics.json", "lock"} <= set(names)
    for name in names:
        assert f"`{name}" in section or f"{name}`" in section or f"/{name}`" in section, f"{name} is not on the page"


def names_in(store: Path) -> list[str]:
    """Returns the names of a store's folders and files, and of its tables, without those before or in the making."""
    return [
        path.name for path in (*store.iterdir(), *(store / "config").iterdir()) if path.suffix not in (".bak", ".tmp")
    ]


async def test_a_broker_has_every_family_and_no_request_belongs_to_two(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        families = list(families_of(served.running.broker))
    assert {type(family) for family in families} == set(FAMILIES)
    codes = [code for family in families for code in family.handlers()]
    assert len(codes) == len(set(codes))
    assert set(codes) == served_requests()
