"""The dead letters: the groups that have some, and those of one group."""

from __future__ import annotations

from starlette.requests import Request

from pyrmq_core.errors import NoRoute
from pyrmq_core.protocol.messages.names import DLQ_PREFIX, is_dead_letter_topic
from pyrmq_core.web.body_text import summary
from pyrmq_core.web.look_ups import FoundMessages, LookUps
from pyrmq_core.web.pages.page import Shown, moment, part, query


async def dead_letters_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the groups with a dead-letter topic, and the newest dead letters of the chosen one."""
    group, before = query(request, "group"), query(request, "before")
    topics = [topic for topic in (await look_ups.topics()).names if is_dead_letter_topic(topic)]
    topic = DLQ_PREFIX + group
    try:
        found = await look_ups.newest(topic, moment(before, "before")) if group else FoundMessages()
    except NoRoute:
        found = FoundMessages()
    return Shown(
        "dead_letters.html",
        {
            "group": group,
            "part": part(request, [topic.removeprefix(DLQ_PREFIX) for topic in topics]),
            "topic": topic,
            "found": found,
            "rows": [(message, summary(message.body)) for message in found.messages],
            "oldest": found.messages[-1].store_timestamp if found.messages and found.more else None,
        },
    )
