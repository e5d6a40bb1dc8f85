"""The names of topics, groups, brokers and clusters for a shell's completion, queried from servers.

The shell waits for them while the user types. So a query ends within a second, and failures print nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from pyrmq_core.tools.cli.connections import connection_of

if TYPE_CHECKING:  # imported only by a completion that queries servers
    from pyrmq_core import Admin

SECONDS: Final = 1.0


async def users_topics(admin: Admin, cluster: str | None = None) -> list[str]:
    """Returns the topics that users created.

    These exclude RocketMQ's own topics, retry and dead-letter topics, topics named after brokers and clusters, and
    manifests. A manifest is a topic in which committed writes record their batches.
    """
    from pyrmq_core import is_dead_letter_topic, is_retry_topic, is_system_topic

    info = await admin.cluster_info()
    replies = (f"{name}_REPLY_TOPIC" for name in info.cluster_addr_table)
    own = {*info.broker_addr_table, *info.cluster_addr_table, *replies, *await admin.topics.manifests()}
    internal = (own.__contains__, is_system_topic, is_retry_topic, is_dead_letter_topic)
    return [name for name in await admin.topics.list(cluster=cluster) if not any(check(name) for check in internal)]


async def _groups(admin: Admin) -> Iterable[str]:
    from pyrmq_core.protocol.messages.names import is_system_group

    return [summary.group for summary in (await admin.groups.list()).groups if not is_system_group(summary.group)]


async def _brokers(admin: Admin) -> Iterable[str]:
    return (await admin.cluster_info()).broker_addr_table


async def _clusters(admin: Admin) -> Iterable[str]:
    return (await admin.cluster_info()).cluster_addr_table


def _names(names_of: Callable[[Admin], Awaitable[Iterable[str]]]) -> Callable[..., list[str]]:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        with ctx.scope(cleanup=False):  # makes options available through the current context
            names = _within_time(names_of, ctx.params)
        return sorted(name for name in names if name.startswith(incomplete) and name.isprintable())

    return complete


topic_names = _names(users_topics)
group_names = _names(_groups)
broker_names = _names(_brokers)
cluster_names = _names(_clusters)

cluster_option = click.option(
    "-c", "--cluster", "--clusterName", "cluster", help="Only brokers of this cluster.", shell_complete=cluster_names
)


def _within_time(names_of: Callable[[Admin], Awaitable[Iterable[str]]], arguments: Mapping[str, Any]) -> list[str]:
    import trio

    from pyrmq_core import Admin, Client  # noqa: F401 - imported before the time limit starts

    names: list[str] = []

    async def look_up() -> None:
        with trio.move_on_after(SECONDS):
            async with connection_of({**arguments, "timeout": SECONDS}).admin() as admin:
                names.extend(await names_of(admin))

    try:
        trio.run(look_up)
    except Exception:  # any exception: a traceback would land in the line that is typed
        return []
    return names
