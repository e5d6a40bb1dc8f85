"""Commit records as bytes, and which of them count."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import DataLost, ManifestError, Message, MessageExt, MessageQueue, PullStatus, RawPull
from pyrmq_core.committed import deciding, records
from pyrmq_core.committed.deciding import (
    Commit,
    commits_between,
    committed_at,
    needed_from,
    next_record,
    remembered,
    without_record,
)
from pyrmq_core.committed.ranges import check_ids, ranges_to_read
from pyrmq_core.committed.records import (
    CommitRecord,
    Decided,
    Entry,
    NoEntry,
    RangesPart,
    StoredRange,
    commit_messages,
    entry_of,
    joined,
)
from pyrmq_core.protocol.messages.payload import decode
from pyrmq_core.protocol.messages.properties import encode_properties
from pyrmq_core.protocol.messages.record import encode_record

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
DEAD = MessageQueue("dead", "broker-a", 0)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
COUNTS = st.integers(0, 2**63 - 1)
OFFSETS = st.integers(-1, 2**63 - 2)  # of a manifest's records: -1 is unknown
RANGES = st.builds(StoredRange, st.builds(MessageQueue, NAMES, NAMES, st.integers(0, 99)), COUNTS, COUNTS, NAMES, NAMES)
RECORDS = st.builds(
    CommitRecord,
    NAMES,
    COUNTS,
    COUNTS,
    st.lists(RANGES, max_size=5).map(lambda ranges: tuple(sorted(ranges, key=lambda stored: stored.queue))),
    COUNTS,
    NAMES,
    st.just(0),
    st.none() | st.dictionaries(NAMES, st.builds(Decided, COUNTS, COUNTS, OFFSETS, COUNTS), max_size=3),
    st.booleans(),
)


def stored_record(queue: MessageQueue, offset: int, message: Message, unique_id: str = "id") -> bytes:
    """Returns the message as it lies in a broker's log."""
    return encode_record(
        topic=message.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        commit_log_offset=offset * 1000,
        body=message.body,
        properties=encode_properties({**message.properties, "UNIQ_KEY": unique_id}),
        born_timestamp_ms=1,
        born_host="127.0.0.1:1",
        store_timestamp_ms=2,
        store_host="127.0.0.1:2",
    )


def stored(message: Message, offset: int) -> MessageExt:
    """Returns the message as a broker gives it."""
    queue = MessageQueue(message.topic, "broker-a", 0)
    record = stored_record(queue, offset, message)
    (read,) = decode(RawPull(queue, offset, offset + 1, 0, 9, PullStatus.FOUND, record))
    return read


def entries_of(record: CommitRecord, first: int = 0) -> dict[int, Entry]:
    entries = dict[int, Entry]()
    for offset, message in enumerate(commit_messages(record, "m"), first):
        entry = entry_of(stored(message, 0))
        assert not isinstance(entry, NoEntry)
        entries[offset] = entry
    return entries


@given(RECORDS)
def test_a_record_comes_back_from_its_message(record: CommitRecord) -> None:
    (read,) = entries_of(record).values()
    assert isinstance(read, CommitRecord)
    assert sorted(read.ranges, key=repr) == sorted(record.ranges, key=repr)
    assert (read.writer, read.number, read.rows, read.seen, read.commit) == (
        record.writer,
        record.number,
        record.rows,
        record.seen,
        record.commit,
    )
    assert (read.decided, read.is_named, read.stored_ms) == (record.decided, record.is_named, 2)


def test_ranges_beyond_one_message_go_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RANGES_A_MESSAGE", 2)
    ranges = tuple(StoredRange(A0, start, 5, "a", "b") for start in range(0, 50, 10))
    entries = entries_of(CommitRecord("w", 1, 25, ranges, 7, "c"), first=7)
    assert [type(entry) for entry in entries.values()] == [RangesPart, RangesPart, CommitRecord]
    assert commits_between(entries, 9, 10) == [Commit(9, "w", 1, 25, ranges)]
    del entries[8]
    with pytest.raises(ManifestError, match="has 2 parts before it, and 1 are there"):
        commits_between(entries, 9, 10)


def test_a_record_of_a_newer_release_is_an_error() -> None:
    newer = stored(Message("m", b"{}", properties={"manifestVersion": "2"}), 3)
    with pytest.raises(ManifestError, match=r"offset 3 of manifest m is of version 2, .* reads version 1: update it"):
        entry_of(newer)


@pytest.mark.parametrize(
    ("properties", "body", "reason"),
    [
        ({}, b"hello", "it lacks the property manifestVersion"),
        ({"manifestVersion": "0"}, b"{}", "its manifestVersion is '0'"),
        ({"manifestVersion": "\u0662"}, b"{}", "its manifestVersion is '\\u0662'"),
        ({"manifestVersion": "1"}, b"no JSON", "JSONDecodeError"),
        ({"manifestVersion": "1"}, b"[]", "TypeError"),
        ({"manifestVersion": "1"}, b"{}", "KeyError"),
        ({"manifestVersion": "1"}, b'{"ranges":{"t":{"b":{"0":[[1,-1,"",""]]}}},"commit":"c"}', "-1 is no count"),
        ({"manifestVersion": "1"}, b'{"ranges":{"t":{"b":{"0":[[1e9,1,"",""]]}}},"commit":"c"}', "is no count"),
        ({"manifestVersion": "1"}, b'{"ranges":{"t":{"b":{"0":[[%d,1,"",""]]}}},"commit":"c"}' % 2**63, "is no count"),
        ({"manifestVersion": "1"}, b'{"ranges":{},"commit":"\\ud800"}', "UnicodeEncodeError"),
        ({"manifestVersion": "1"}, b"[" * 100_000, "RecursionError"),
        ({"manifestVersion": "1"}, b" " * 9 * 1024 * 1024 + b"{}", "it has 9437186 bytes"),
    ],
)
def test_a_message_that_is_no_record_is_no_entry(properties: dict[str, str], body: bytes, reason: str) -> None:
    entry = entry_of(stored(Message("m", body, properties=properties), 3))
    assert isinstance(entry, NoEntry)
    assert reason in entry.reason
    assert entry.reason.isascii()


def test_a_record_that_contradicts_itself_is_an_error() -> None:
    """Its ranges are not its rows, by number or by overlap, or its parts belong to another record."""
    part = RangesPart("c", (StoredRange(A0, 0, 5, "a", "b"),))
    owner = CommitRecord("w", 0, 5, (), 0, "c", parts=1)
    assert commits_between({0: part, 1: owner}, 0, 2) == [Commit(1, "w", 0, 5, part.ranges)]
    with pytest.raises(
        ManifestError, match=r"offset 2 of .* names parts that belong to a record before it\. .*start=3"
    ):
        commits_between({0: part, 1: owner, 2: replace(owner, writer="v")}, 0, 3)
    with pytest.raises(
        ManifestError, match=r"offset 1 of .* states 6 rows, and its ranges are not as many\. .*start=2"
    ):
        commits_between({0: part, 1: replace(owner, rows=6)}, 0, 2)
    twice = replace(part, ranges=part.ranges * 2)
    with pytest.raises(ManifestError, match="states 10 rows"):
        commits_between({0: twice, 1: replace(owner, rows=10)}, 0, 2)
    with pytest.raises(ManifestError, match="states 11 rows"):
        commits_between({0: replace(record(0, 0), rows=11)}, 0, 1)


def test_a_record_that_contradicts_itself_decides_nothing() -> None:
    entries: dict[int, Entry] = {0: replace(record(7, 0), rows=11), 1: record(7, 1)}
    assert [commit.offset for commit in commits_between(entries, 1, 2)] == [1]
    assert committed_at({0: entries[0]}, 0, 1) == ({}, 1)


def test_more_ranges_than_a_reader_takes_are_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "MOST_RANGES", 2)
    apart = [StoredRange(A0, start, 1, "a", "a") for start in (0, 2, 4)]
    with pytest.raises(ManifestError, match="batch 3 of w has 3 ranges, and a record at most 2"):
        next_record("w", 3, apart, commit="c", seen=0, decided={}, without_decided=0)


def record(number: int, seen: int, writer: str = "w") -> CommitRecord:
    return CommitRecord(writer, number, 10, (StoredRange(A0, number * 10, 10, "a", "b"),), seen, "c")


@pytest.mark.parametrize(
    ("log", "counting"),
    [
        ([record(0, 0), record(1, 1)], [0, 1]),
        ([record(0, 0), record(0, 0)], [0]),  # sent again, before the first was readable
        ([record(0, 0), record(0, 0, "other")], [0, 1]),
        ([record(1, 0), record(0, 0)], [0]),  # a late one of an earlier batch
        ([record(0, 5)], [0]),  # the broker lost messages after the look
        ([record(0, 5), record(0, 5), record(0, 9, "other")], [0, 2]),  # and after those of two attempts
    ],
)
def test_the_first_record_of_a_batch_counts(log: list[CommitRecord], counting: list[int]) -> None:
    entries = dict(enumerate(log))
    assert [commit.offset for commit in commits_between(entries, 0, len(log))] == counting
    for start in range(len(log)):  # a reader may begin anywhere
        needed = needed_from(entries, start, len(log))
        own = {offset: entry for offset, entry in entries.items() if offset >= needed}
        later = [offset for offset in counting if offset >= start]
        assert [commit.offset for commit in commits_between(own, start, len(log))] == later


def test_a_record_whose_committer_stood_still_for_long_does_not_count() -> None:
    far = deciding.LONGEST_LOOK_BACK + 1
    assert needed_from({far: record(0, 0)}, far, far + 1) == far
    assert commits_between({far: record(0, 0)}, far, far + 1) == []


def test_what_is_decided_is_known_from_the_last_entries() -> None:
    """Each record of few writers says it, of more one in 32."""
    log = log_of(["w", "v"], 100)
    decided = committed_at({199: log[199]}, 199, 200)
    assert decided is not None
    assert dict(decided[0]) == {"w": Decided(99, 0, 198), "v": Decided(99, 0, 199)}
    assert next_record("w", 99, (), commit="c", seen=200, decided=decided[0], without_decided=decided[1]) is None
    many = [f"w{number}" for number in range(20)]
    log = log_of(many, 10)
    last = {offset: entry for offset, entry in enumerate(log) if offset >= 200 - 40}
    decided = committed_at(last, 160, 200)
    assert decided is not None
    assert dict(decided[0]) == {name: Decided(9, 0, 180 + number) for number, name in enumerate(many)}
    assert committed_at({199: log[199]}, 199, 200) is None


def following(log: list[CommitRecord], writer: str, number: int, *, named: bool = True) -> CommitRecord | None:
    """Returns the record that a committer would append."""
    start = max(0, len(log) - 40)
    decided = committed_at({offset: log[offset] for offset in range(start, len(log))}, start, len(log))
    assert decided is not None
    return next_record(
        writer,
        number,
        (),
        commit="c",
        seen=len(log),
        decided=decided[0],
        without_decided=decided[1],
        named=named,
    )


def log_of(writers: list[str], batches: int) -> list[CommitRecord]:
    """Returns a manifest to which the writers committed in turn."""
    log: list[CommitRecord] = []
    for number in range(batches):
        for writer in writers:
            record = following(log, writer, number)
            assert record is not None
            log.append(record)
    return log


DAY_MS = 24 * 3600 * 1000


def test_a_writer_is_forgotten_by_time() -> None:
    decided = {
        "old": Decided(1, 1, 0, DAY_MS),
        "year": Decided(1, 1, 1, 40 * DAY_MS),
        "new": Decided(1, 1, 2, 405 * DAY_MS),
    }
    assert list(remembered(decided)) == ["year", "new"]
    unknown = {"of an earlier release": Decided(1, 1), **decided}
    assert list(remembered(unknown)) == ["of an earlier release", "year", "new"]


def test_writers_that_commit_once_are_not_listed() -> None:
    """However many come between, no list names them, and the named writer stays."""
    log = log_of(["daily"], 1)
    for number in range(1000):
        once = following(log, f"once {number}", 0, named=False)
        assert once is not None
        assert list(once.decided or ()) == ["daily"]
        log.append(once)
    assert following(log, "daily", 0) is None


def test_a_thousand_named_writers_forget_none() -> None:
    log = log_of([f"w{number}" for number in range(1100)], 1)
    assert following(log, "w0", 0) is None


def test_a_list_is_bounded_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "MOST_LIST_BYTES", 3 * (deciding.BYTES_A_WRITER + 1))
    assert list(remembered({name: Decided(0, 0) for name in "abcde"})) == ["c", "d", "e"]


def test_a_list_that_its_records_do_not_bear_out_is_passed_over() -> None:
    log = log_of(["job"], 3)
    forged = replace(record(0, 3, "evil"), decided={"job": Decided(10**9, 0)})
    entries = dict(enumerate([*log, forged]))
    decided, _ = committed_at(entries, 0, 4) or ({}, 0)
    assert without_record(entries, decided) == {"job": Decided(10**9, 0)}
    decided, following_list = committed_at(entries, 0, 4, disbelieved={3}) or ({}, 0)
    assert ({writer: last.number for writer, last in decided.items()}, following_list) == ({"job": 2, "evil": 0}, 1)


def test_ranges_are_joined() -> None:
    parts = [StoredRange(A0, 10, 5, "f", "j"), StoredRange(A0, 0, 10, "a", "e"), StoredRange(A1, 15, 1, "k", "k")]
    assert joined(parts) == [StoredRange(A0, 0, 15, "a", "j"), StoredRange(A1, 15, 1, "k", "k")]


def test_ranges_to_read_keep_every_id_and_never_overlap() -> None:
    commits = [
        Commit(0, "w", 0, 0, (StoredRange(A0, 0, 10, "a", "b"), StoredRange(A1, 0, 3, "x", "y"))),
        Commit(1, "v", 0, 0, (StoredRange(A0, 10, 10, "c", "d"), StoredRange(A0, 15, 10, "e", "f"))),
        Commit(2, "v", 1, 0, (StoredRange(A0, 40, 1, "g", "g"), StoredRange(DEAD, 0, 9, "", ""))),
    ]
    facts = [
        (readable.queue, readable.start, readable.end, readable.ids) for readable in ranges_to_read(commits, "orders")
    ]
    assert facts == [
        (A0, 0, 25, ((0, "a"), (9, "b"), (10, "c"), (15, "e"), (19, "d"), (24, "f"))),
        (A0, 40, 41, ((40, "g"), (40, "g"))),
        (A1, 0, 3, ((0, "x"), (2, "y"))),
    ]


def test_other_messages_in_the_place_of_committed_ones_are_data_loss() -> None:
    bodies = [stored_record(A0, offset, Message("orders", b"x"), f"id{offset}") for offset in range(5, 8)]
    pull = RawPull(A0, 5, 8, 0, 8, PullStatus.FOUND, b"".join(bodies), is_unfiltered=True)
    check_ids(pull, [(4, "?"), (5, "id5"), (7, "id7"), (8, "?")])
    with pytest.raises(DataLost, match=r"offset 7 of .* is not the committed one: it has the id id7, and other"):
        check_ids(pull, [(5, "id5"), (7, "other")])
