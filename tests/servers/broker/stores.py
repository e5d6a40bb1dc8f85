"""Small stores for tests: segments and queue files of a few hundred bytes, and messages to put into them."""

from collections.abc import Iterable
from dataclasses import dataclass

from pyrmq_core.protocol.messages.record import StoredRecord, iterate_records, pack_host
from pyrmq_core.servers.broker.store.appending import Append
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.layout import StoreSettings
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.reading import GetLimits

SMALL = StoreSettings(segment_bytes=1024, queue_file_bytes=100)
ALL = GetLimits(max_messages=100_000, max_bytes=1 << 30)
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Sent:
    """Messages put together, as the tests' plain list holds them."""

    topic: str
    queue_id: int
    bodies: tuple[bytes, ...]
    tags: str = ""

    def append(self) -> Append:
        properties = f"TAGS\x01{self.tags}\x02".encode() if self.tags else b""
        return Append(
            topic=self.topic,
            queue_id=self.queue_id,
            pieces=[piece(0, body, properties) for body in self.bodies],
            born_timestamp_ms=NOW_MS,
            born_host=pack_host("10.0.0.5:50000"),
            store_host=pack_host("127.0.0.1:10911"),
        )


def opened(files: Files, settings: StoreSettings = SMALL) -> MessageStore:
    store = MessageStore(files, settings)
    store.open(1)
    return store


def put(store: MessageStore, *sent: Sent, now_ms: int = NOW_MS) -> None:
    for batch in sent:
        store.put(batch.append(), now_ms)


def read(store: MessageStore, topic: str, queue_id: int, offset: int = 0) -> list[StoredRecord]:
    return list(iterate_records(store.reader.get((topic, queue_id), offset, ALL).records, check_crc=True))


def contents(store: MessageStore, keys: Iterable[tuple[str, int]]) -> dict[tuple[str, int], list[bytes]]:
    """Returns the bodies of each queue; checks that its offsets are dense and its own."""
    queues = {}
    for topic, queue_id in keys:
        records = read(store, topic, queue_id)
        assert [record.queue_offset for record in records] == list(range(len(records)))
        assert all((record.topic, record.queue_id) == (topic, queue_id) for record in records)
        assert store.reader.bounds((topic, queue_id)) == (0, len(records))
        queues[topic, queue_id] = [record.body for record in records]
    return queues


def expected(sent: Iterable[Sent], keys: Iterable[tuple[str, int]]) -> dict[tuple[str, int], list[bytes]]:
    lists: dict[tuple[str, int], list[bytes]] = {key: [] for key in keys}
    for batch in sent:
        lists[batch.topic, batch.queue_id] += batch.bodies
    return lists
