"""Tests of `Admin.messages` that run alike on our servers and on each release of RocketMQ."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import pytest
import trio

from pyrmq_core import (
    Admin,
    ConsumeLater,
    InvalidArgument,
    InvalidState,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
)
from pyrmq_core.client.admin.message_tracks import MessageTrack, TrackType
from pyrmq_core.protocol.requests.client.consume_message_directly import CMResult
from tests.support.consumer_jobs import Seen, consuming, fresh, made_topic
from tests.support.group_admin_jobs import SECONDS, administering, described
from tests.support.waiting import POLL_SECONDS

T = TypeVar("T")


async def eventually(query: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
    """Returns the first result for which the condition holds."""
    with trio.fail_after(SECONDS):
        while not holds(answer := await query()):  # noqa: ASYNC110 - the other side is a server
            await trio.sleep(POLL_SECONDS)
        return answer


async def sent(nameserver: str, topic: str, body: str = "x", keys: str | None = None, tags: str | None = None) -> str:
    """Sends one message to the first queue of broker-a, with a property; returns its unique key."""
    async with Producer(fresh("senders"), nameserver=nameserver, send_timeout=20) as producer:
        message = Message(topic, body.encode(), keys=keys, tags=tags, properties={"region": "eu"})
        return (await producer.send(message, queue=MessageQueue(topic, "broker-a", 0))).msg_id


async def found(admin: Admin, topic: str, unique_key: str) -> MessageExt:
    (message,) = (
        await eventually(
            lambda: admin.messages.by_unique_key(topic, unique_key), lambda listing: bool(listing.messages)
        )
    ).messages
    return message


async def dead(nameserver: str, admin: Admin, group: str, topic: str, body: str = "poison") -> MessageExt:
    """Sends a message that the group's only member throws away; returns its dead letter."""
    seen = Seen()
    seen.orders = {body: [ConsumeLater(-1)]}
    async with consuming(nameserver, group, topic, seen):
        await sent(nameserver, topic, body, keys="k7", tags="t")
        await seen.wait(1)
        letters = await eventually(lambda: admin.messages.dead_letters(group), lambda listing: bool(listing.messages))
    (letter,) = letters.messages
    return letter


def of_group(tracks: tuple[MessageTrack, ...], group: str) -> MessageTrack:
    (track,) = [track for track in tracks if track.group == group]
    return track


class MessageAdminJobs:
    """One test a promise; `nameserver` is a fixture of the class that inherits these."""

    async def test_messages_are_found_by_each_of_their_names(self, nameserver: str) -> None:
        topic = await made_topic(nameserver, 1)
        unique = await sent(nameserver, topic, "one", keys="k1 k2")
        async with administering(nameserver) as admin:
            message = await found(admin, topic, unique)
            assert (message.body, message.msg_id) == (b"one", unique)
            assert (await admin.messages.by_id(message.offset_msg_id, topic=topic)).body == b"one"
            for key in ("k1", "k2"):
                assert [item.msg_id for item in (await admin.messages.by_key(topic, key)).messages] == [unique]
            second = timedelta(seconds=1)
            early = await admin.messages.by_key(topic, "k1", end=message.store_timestamp - second)
            late = await admin.messages.by_key(topic, "k1", begin=message.store_timestamp + second)
            absent = await admin.messages.by_key(topic, "absent")
            nothing = await admin.messages.by_unique_key(topic, "0" * 32)
        for listing in (early, late, absent, nothing):
            assert (listing.messages, listing.failures) == ((), {})

    async def test_a_row_is_found_by_the_text_of_its_keys(self, nameserver: str) -> None:
        """More rows than a broker answers with have the first word of the text, and all have most of its words."""
        topic = await made_topic(nameserver, 1)
        texts = [f'{{"id": {number}, "shop": "tea house"}}' for number in range(80)]
        async with Producer("rows", nameserver=nameserver, send_timeout=20) as producer:
            await producer.send_batch([Message(topic, text.encode(), keys=text) for text in texts])
        async with administering(nameserver) as admin:
            listing = await eventually(
                lambda: admin.messages.by_key(topic, texts[79]), lambda listing: bool(listing.messages)
            )
            first = await admin.messages.by_key(topic, f" {texts[0]}")
            absent = await admin.messages.by_key(topic, texts[0].replace("tea house", "house tea"))
        assert [message.body for message in listing.messages] == [texts[79].encode()]
        assert [message.body for message in first.messages] == [texts[0].encode()]
        assert (absent.messages, absent.failures) == ((), {})

    async def test_two_messages_of_one_unique_key_are_both_found(self, nameserver: str) -> None:
        """The second one is a dead letter's copy that is sent to its first topic again, as a retry of a send would."""
        topic, group = await made_topic(nameserver, 1), fresh("group")
        async with administering(nameserver) as admin:
            letter = await dead(nameserver, admin, group, topic)
            await admin.messages.resend(group, letter, to="origin")
            both = await eventually(
                lambda: admin.messages.by_unique_key(topic, letter.msg_id), lambda listing: len(listing.messages) == 2
            )
        assert {message.body for message in both.messages} == {b"poison"}
        assert len({message.offset_msg_id for message in both.messages}) == 2
        assert {message.topic for message in both.messages} == {topic}

    async def test_a_dead_letter_is_resent_to_its_group(self, nameserver: str) -> None:
        topic, group, seen = await made_topic(nameserver, 1), fresh("group"), Seen()
        async with administering(nameserver) as admin:
            letter = await dead(nameserver, admin, group, topic)
            assert letter.topic == f"%DLQ%{group}"
            assert letter.body == b"poison"
            original = await found(admin, topic, letter.msg_id)
            async with consuming(nameserver, group, topic, seen):
                (track,) = await admin.messages.track(original)
                assert track.track_type is TrackType.DEAD_LETTER
                await admin.messages.resend(group, letter)
                await seen.wait(1)
                await eventually(
                    lambda: admin.messages.track(original), lambda tracks: tracks[0].track_type is TrackType.CONSUMED
                )
            assert len((await admin.messages.dead_letters(group)).messages) == 1
        (message,) = seen.messages
        assert (message.body, message.topic, message.msg_id) == (b"poison", topic, letter.msg_id)
        assert (message.keys, message.tags) == ("k7", "t")
        assert message.properties.get("WAIT", "true") == "true"  # 4.9 stores no "true"
        assert message.reconsume_times == 0

    async def test_other_messages_are_no_dead_letters(self, nameserver: str) -> None:
        topic = await made_topic(nameserver, 1)
        async with administering(nameserver) as admin:
            message = await found(admin, topic, await sent(nameserver, topic))
            with pytest.raises(InvalidArgument, match="is no dead letter of audit"):
                await admin.messages.resend("audit", message)
            none = await admin.messages.dead_letters(fresh("lively"))
        assert (none.messages, none.failures) == ((), {})

    async def test_the_life_of_a_message_is_tracked(self, nameserver: str) -> None:
        topic, live, gone, pulling = await made_topic(nameserver, 1), fresh("live"), fresh("gone"), fresh("pulling")
        seen = Seen()
        async with administering(nameserver) as admin:
            letter = await dead(nameserver, admin, gone, topic)
            message = await found(admin, topic, letter.msg_id)
            async with PullConsumer(pulling, nameserver=nameserver, timeout=20) as consumer:
                await consumer.commit(message.queue, 0)
            async with consuming(nameserver, live, topic, seen):
                await seen.wait(1)
                tracks = await eventually(
                    lambda: admin.messages.track(message),
                    lambda tracks: any(track.track_type is TrackType.CONSUMED for track in tracks),
                )
        assert [track.group for track in tracks] == sorted((live, gone, pulling))
        assert (of_group(tracks, live).dead_letters, of_group(tracks, live).retries) == ((), ())
        assert of_group(tracks, live).consumer_offset == message.queue_offset + 1
        away = of_group(tracks, gone)
        assert (away.track_type, away.consumer_offset) == (TrackType.DEAD_LETTER, message.queue_offset + 1)
        assert [dead_letter.body for dead_letter in away.dead_letters] == [b"poison"]
        async with administering(nameserver) as admin:
            (track,) = await admin.messages.track(letter)
        assert (track.group, track.track_type) == (gone, TrackType.DEAD_LETTER)
        assert of_group(tracks, pulling).consumer_offset == 0
        assert {track.error for track in tracks} == {None}

    async def test_a_retried_message_has_its_copies(self, nameserver: str) -> None:
        topic, group, seen = await made_topic(nameserver, 1), fresh("group"), Seen()
        seen.orders = {"again": [ConsumeLater(1)]}
        async with consuming(nameserver, group, topic, seen), administering(nameserver) as admin:
            unique = await sent(nameserver, topic, "again")
            await seen.wait(2)
            message = await found(admin, topic, unique)
            tracks = await eventually(
                lambda: admin.messages.track(message), lambda tracks: bool(of_group(tracks, group).retries)
            )
        assert [retry.reconsume_times for retry in of_group(tracks, group).retries] == [1]

    async def test_a_message_that_tags_leave_out_was_filtered(self, nameserver: str) -> None:
        topic, group, seen = await made_topic(nameserver, 1), fresh("group"), Seen()
        async with consuming(nameserver, group, topic, seen, tags="b"), administering(nameserver) as admin:
            message = await found(admin, topic, await sent(nameserver, topic, "left out", tags="a"))
            await sent(nameserver, topic, "wanted", tags="b")
            await seen.wait(1)
            tracks = await eventually(
                lambda: admin.messages.track(message),
                lambda tracks: of_group(tracks, group).track_type is not TrackType.NOT_CONSUME_YET,
            )
        assert of_group(tracks, group).track_type is TrackType.CONSUMED_BUT_FILTERED

    async def test_a_member_consumes_a_message_directly(self, nameserver: str) -> None:
        topic, group, seen = await made_topic(nameserver, 1), fresh("group"), Seen()
        async with administering(nameserver) as admin:
            async with consuming(nameserver, group, topic, seen):
                description = await described(admin, group, 2)
                unique = await sent(nameserver, topic, "twice")
                await seen.wait(1)
                message = await found(admin, topic, unique)
                result = await admin.messages.consume_directly(group, message)
                client_id = description.members[0].client_id
                named = await admin.messages.consume_directly(group, message, client_id=client_id)
                await seen.wait(3)
            with pytest.raises(InvalidState, match=f"no member of group {group} is connected to broker-a"):
                await eventually(lambda: admin.messages.consume_directly(group, message), lambda _: False)
        assert {result.consume_result, named.consume_result} == {CMResult.SUCCESS}
        assert seen.bodies == ["twice"] * 3

    async def test_a_trace_tells_who_sent_and_consumed(self, nameserver: str) -> None:
        topic, group, seen = await made_topic(nameserver, 1), fresh("group"), Seen()
        producing = fresh("tracing")
        async with administering(nameserver) as admin:
            async with consuming(nameserver, group, topic, seen, trace=True):
                async with Producer(producing, nameserver=nameserver, send_timeout=20, trace=True) as producer:
                    unique = (await producer.send(Message(topic, b"traced", keys="k1", tags="t"))).msg_id
                await seen.wait(1)
            trace = await eventually(lambda: admin.messages.trace(unique), lambda answer: len(answer.events) == 3)
            nothing = await admin.messages.trace("0" * 32)
        assert sorted(event.kind for event in trace.events) == ["Pub", "SubAfter", "SubBefore"]
        events = {event.kind: event for event in trace.events}
        published = events["Pub"]
        assert (published.group, published.topic, published.keys, published.tags) == (producing, topic, "k1", "t")
        assert (published.success, published.body_length, published.msg_id) == (True, 6, unique)
        assert (events["SubBefore"].group, events["SubBefore"].retry_times) == (group, 0)
        assert (events["SubAfter"].success, events["SubAfter"].request_id) == (True, events["SubBefore"].request_id)
        assert nothing.events == ()
