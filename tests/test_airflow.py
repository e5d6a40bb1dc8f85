"""The trigger for Airflow, run as Airflow's triggerer runs it, by an Airflow that is installed apart."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_core.embedded import PASS, Pass
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from tests.support.apart import installed_apart
from tests.support.maven import ApacheUnavailable

ROOT = Path(__file__).parent.parent
DAG = ROOT / "examples" / "airflow_dags" / "order_arrived.py"
NAMESERVER = "127.0.0.1:9876"
AIRFLOW = (
    "aiosqlite==0.22.1",
    "annotated-types==0.8.0",
    "apache-airflow-core==3.3.2",
    "apache-airflow-providers-common-compat==1.23.0",
    "apache-airflow-providers-common-messaging==2.1.2",
    "apache-airflow-providers-standard==1.21.0",
    "apache-airflow-task-sdk==1.3.2",
    "asgiref==3.13.0",
    "fsspec==2026.9.0",
    "greenlet==3.5.6",
    "itsdangerous==2.2.0",
    "jsonschema==4.26.0",
    "jsonschema-specifications==2025.9.1",
    "lazy-object-proxy==1.13.0",
    "libcst==1.9.0",
    "methodtools==0.4.7",
    "msgspec==0.22.0",
    "pathlib-abc==0.5.2",
    "pendulum==3.3.0",
    "psutil==7.2.2",
    "pydantic==2.14.4",
    "pydantic-core==2.50.5",
    "pygtrie==2.6.2",
    "referencing==0.37.0",
    "rpds-py==2026.9.1",
    "six==1.17.0",
    "sqlalchemy==2.1.9",
    "structlog==26.1.0",
    "tenacity==9.2.1",
    "typing-inspection==0.4.5",
    "universal-pathlib==0.3.10",
    "uuid6==2025.0.1",
    "wirerope==1.0.0",
)

# Prints what each part yields. A trigger is made anew from what it serializes to, as in a triggerer.
PROGRAM = """
import asyncio, importlib, json, runpy, sys
from types import SimpleNamespace
from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from pyrmq_core import Message
from pyrmq_core.aio import Producer

nameserver, dag = sys.argv[1:]

def remade(trigger):
    path, arguments = trigger.serialize()
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)(**json.loads(json.dumps(arguments)))

async def run(trigger):
    return [event.payload async for event in remade(trigger).run()]

async def main():
    example = runpy.run_path(dag)
    watcher, = example["orders"].watchers
    killed = remade(watcher.trigger).run()
    results = {"killed": [(await anext(killed)).payload]}
    await killed.aclose()
    results["again"] = await run(watcher.trigger)
    results["next"] = await run(watcher.trigger)
    waiting = asyncio.create_task(run(watcher.trigger))
    async with Producer("late", nameserver=nameserver) as producer:
        await producer.send(Message("orders", b"\\xff"))
    results["late"] = await waiting

    queue = f"rocketmq://{nameserver}/orders?group=blues&tags=blue&conn_id=mq"
    results["blue"] = await run(MessageQueueTrigger(queue=queue, max_messages=10))
    results["refused"] = []
    for wrong in (queue + "&color=blue", f"rocketmq://{nameserver}/?tags=blue"):
        try:
            MessageQueueTrigger(queue=wrong).trigger
        except ValueError as error:
            results["refused"].append(str(error))

    pack, = example["order_arrived"]().tasks
    events = [SimpleNamespace(extra={"payload": payload}) for payload in results["again"] + results["next"]]
    results["packed"] = pack.python_callable(triggering_asset_events={example["orders"]: events})
    print(json.dumps(results))

asyncio.run(asyncio.wait_for(main(), 150))
"""


def run_in_airflow(cluster: EmbeddedCluster, directory: Path) -> dict[str, Any]:
    try:
        packages = installed_apart("airflow-3.3", AIRFLOW)
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    dag = directory / DAG.name
    dag.write_text(DAG.read_text().replace(NAMESERVER, cluster.nameserver))
    environment = os.environ | {
        "PYTHONPATH": str(packages),
        "AIRFLOW_HOME": str(directory),
        "AIRFLOW_CONN_MQ": "rocketmq://reader:sesame-oil@",
    }
    command = [sys.executable, "-c", PROGRAM, cluster.nameserver, str(dag)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results


@pytest.mark.timeout(900)  # the packages are 110 MB
def test_a_trigger_fires_for_each_message_and_one_whose_event_is_not_taken_comes_again(tmp_path: Path) -> None:
    keys = set()

    async def look(request: Command, peer: Peer) -> Command | Pass:
        keys.add((request.ext["consumerGroup"], request.ext.get("AccessKey")))
        return PASS

    with EmbeddedCluster() as cluster:
        with Admin(nameserver=cluster.nameserver) as admin:
            admin.create_topic("orders", queues=1)
        with Producer("orders", nameserver=cluster.nameserver) as producer:
            producer.send(Message("orders", b"two boxes of tea", tags="red"))
            sent = producer.send(
                Message("orders", "a cup, à la carte".encode(), "blue", "key", properties={"to": "ann"})
            )
        cluster.control(RequestCode.PULL_MESSAGE, look)
        results = run_in_airflow(cluster, tmp_path)
    bodies = {
        name: [message.get("body") for payload in results[name] for message in payload["messages"]]
        for name in ("killed", "again", "next", "late", "blue")
    }
    assert bodies == {
        "killed": ["two boxes of tea"],
        "again": ["two boxes of tea"],
        "next": ["a cup, à la carte"],
        "late": [None],
        "blue": ["a cup, à la carte"],
    }
    (cup,) = results["next"][0]["messages"]
    assert (cup["msg_id"], cup["queue_offset"], cup["topic"]) == (sent.msg_id, 1, "orders")
    assert (cup["tags"], cup["keys"], cup["properties"]) == ("blue", "key", {"to": "ann"})
    assert results["late"][0]["messages"][0]["body_base64"] == "/w=="
    assert results["packed"] == ["two boxes of tea", "a cup, à la carte"]
    unknown, lacking = results["refused"]
    assert unknown.endswith("names color; it may name conn_id, group, sql, tags")
    assert "has no topic, group: rocketmq://HOST:PORT/TOPIC?group=GROUP" in lacking
    assert keys == {("airflow-orders", None), ("blues", "reader")}
