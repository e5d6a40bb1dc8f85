"""Marks of lite topics: what a message costs with many subscribers, and that every mark is found and none is left."""

from __future__ import annotations

import random
from typing import cast

import pytest

from pyrmq_core.network import Peer
from pyrmq_core.servers.broker.pop.lite_clients import FEW, MOST_MARKED, LiteClient, LiteClients

PEER = cast("Peer", object())
QUEUE = "%LMQ%$T$a"


class Scene:
    """Clients, the ids of those with a waiting pop, and the pops that were woken."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.waiting: set[str] = set()
        self.asked = 0
        self.clients = LiteClients(self.wake)

    def wake(self, client_id: str, group: str) -> bool:
        self.asked += 1
        if client_id not in self.waiting:
            return False
        self.note(client_id, group, waits=False)
        self.woken.append(client_id)
        return True

    def note(self, client_id: str, group: str = "G", *, waits: bool = True) -> None:
        (self.waiting.add if waits else self.waiting.discard)(client_id)
        self.clients.note_waiting(client_id, group, waits=waits)

    def mark_if(self, client: LiteClient, queue: str, ready: set[tuple[str, str]]) -> None:
        """Marks a queue for a client that subscribed just now, if it has messages."""
        if (client.group, queue) in ready:
            self.clients.mark(client, queue)

    def joined(self, number: int, group: str = "G", *, has_all: bool = False) -> LiteClient:
        client = self.clients.register(f"{group}{number}", group, "T", PEER)
        _ = self.clients.add_all(client) if has_all else self.clients.add(client, QUEUE)
        return client


@pytest.mark.parametrize("has_all", [False, True])
def test_a_message_costs_nothing_for_subscribers_that_do_not_wait(has_all: bool) -> None:
    scene = Scene()
    members = [scene.joined(number, has_all=has_all) for number in range(1000)]
    scene.clients.ready(QUEUE)
    assert (scene.asked, sum(len(member.ready) for member in members)) == (0, 0)
    assert list(scene.clients.take_ready(members[7])) == [QUEUE]
    assert list(scene.clients.take_ready(members[8])) == []  # its messages are the first one's until they are settled
    for number in (700, 3):
        scene.note(f"G{number}")
    for _ in range(3):
        scene.clients.ready(QUEUE)
    assert (scene.woken, scene.asked) == (["G700", "G3"], 2)


def test_many_marks_are_taken_in_parts() -> None:
    scene = Scene()
    members = [scene.joined(number, has_all=True) for number in range(FEW + 1)]
    names = [f"%LMQ%$T${number}" for number in range(3 * MOST_MARKED)]
    for name in names:
        scene.clients.ready(name)
    parts = [list(scene.clients.take_ready(member)) for member in members[:4]]
    assert parts == [names[at : at + MOST_MARKED] for at in range(0, 4 * MOST_MARKED, MOST_MARKED)]


@pytest.mark.parametrize("seed", range(30))
def test_every_mark_is_found_and_none_is_left(seed: int) -> None:
    """Clients of two groups come and go. Each of them finds a queue until one of its group has popped there."""
    draw, scene = random.Random(seed), Scene()
    clients, names, ready = scene.clients, [f"%LMQ%$T${letter}" for letter in "abcd"], set[tuple[str, str]]()
    for _ in range(600):
        group = draw.choice("GH")
        client = clients.register(f"{group}{draw.randrange(2 * FEW)}", group, "T", PEER)
        name, members = draw.choice(names), clients.of_group(group)
        match draw.randrange(12):
            case 0 if draw.random() < 0.2:
                clients.add_all(client)
                for each in names:
                    scene.mark_if(client, each, ready)
            case 1 | 2 | 3 | 4:
                clients.add(client, name)
                scene.mark_if(client, name, ready)
            case 5:
                clients.remove(client, [name])
            case 6 if draw.random() < 0.2:
                clients.forget(client.client_id)
            case 7:
                scene.note(client.client_id, group)
            case 8:
                woken = len(scene.woken)
                waits = {each.group for each in clients.subscribers(name) if each.client_id in scene.waiting}
                clients.ready(name)
                assert {each[0] for each in scene.woken[woken:]} == waits
                ready |= {(each.group, name) for each in clients.subscribers(name)}
            case 9:
                ready -= {(group, each) for each in clients.take_ready(client)}
            case _ if members:
                for member in members:
                    marks, due = set(clients.marked(member)), {each for which, each in ready if which == group}
                    assert {each for each in due if member.gets(each)} <= marks
                    assert all(map(member.gets, marks))
    for client_id in list(clients._clients):
        clients.forget(client_id)
    assert (len(clients), clients.subscriptions, clients._subscribers, clients._shared) == (0, 0, {}, {})
