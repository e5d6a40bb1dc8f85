"""The trigger for Airflow, run as Airflow's triggerer runs it and by that itself, in an Airflow installed apart."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pyrmq_core import ConsumeFromWhere, Message
from pyrmq_core.blocking import Admin, EmbeddedCluster, LitePullConsumer, Producer
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

# What Airflow's own processes need beside these.
PROCESSES = (
    "a2wsgi==1.10.10",
    "alembic==1.20.1",
    "annotated-doc==0.0.7",
    "argcomplete==3.7.2",
    "arrow==1.4.0",
    "cachetools==8.0.2",
    "cadwyn==7.0.0",
    "colorlog==6.12.0",
    "cron-descriptor==2.2.1",
    "croniter==7.0.0",
    "deprecated==1.3.1",
    "dill==0.4.1",
    "dnspython==2.9.2",
    "email-validator==2.4.0",
    "fastapi==0.136.3",
    "fastapi-cli==0.0.34",
    "googleapis-common-protos==1.76.0",
    "greenback==1.3.0",
    "grpcio==1.85.3",
    "httptools==0.9.0",
    "isoduration==20.11.0",
    "linkify-it-py==2.2.0",
    "lockfile==0.12.2",
    "mako==1.4.3",
    "natsort==8.4.0",
    "opentelemetry-exporter-http-transport==0.66b2",
    "opentelemetry-exporter-otlp==1.45.2",
    "opentelemetry-exporter-otlp-common==0.66b2",
    "opentelemetry-exporter-otlp-proto-common==1.45.2",
    "opentelemetry-exporter-otlp-proto-grpc==1.45.2",
    "opentelemetry-exporter-otlp-proto-http==1.45.2",
    "opentelemetry-proto==1.45.2",
    "protobuf==7.36.2",
    "pydantic-extra-types==2.11.1",
    "pydantic-settings==2.16.3",
    "pyjwt==2.15.1",
    "python-daemon==3.1.2",
    "python-dotenv==1.2.4",
    "python-multipart==0.0.34",
    "python-slugify==9.2.0",
    "rich-argparse==1.8.0",
    "rich-toolkit==0.20.6",
    "setproctitle==1.3.8",
    "shellingham==1.5.4",
    "svcs==26.2.0",
    "tabulate==0.10.0",
    "termcolor==3.3.0",
    "text-unidecode==1.3",
    "typer==0.29.2",
    "uvicorn==0.54.0",
    "uvloop==0.23.0",
    "watchfiles==1.3.0",
    "websockets==17.4",
    "wrapt==2.5.2",
)

# Prints what each part yields. A trigger is made anew from what it serializes to, as in a triggerer.
PROGRAM = """
import asyncio, importlib, json, runpy, sys
from types import SimpleNamespace
from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from pyrmq_core import ConsumeFromWhere, Message
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


# Goes before the example: the task's messages are sent on, and the end of its run is a message, too.
SENDING = """
from pyrmq_core import ConsumeFromWhere, Message
from pyrmq_core.blocking import Producer

def sent(bodies):
    with Producer("dag", nameserver=NAMESERVER) as producer:
        for body in bodies:
            producer.send(Message("confirmed", body.encode()))
    return bodies

def ended(context):
    sent([f"{context['dag_run'].dag_id}: {context['dag_run'].state}"])

"""
SERVERS = {
    "api-server": (),
    "dag-processor": (),
    "scheduler": ("--skip-serve-logs",),
    "triggerer": ("--skip-serve-logs",),
}
ENDS_WITHIN = 60


def packages_of(*names_and_packages: tuple[str, tuple[str, ...]]) -> str:
    """Returns the path of Python for an Airflow with these packages, or skips the test where they cannot be had."""
    try:
        return os.pathsep.join(str(installed_apart(name, packages)) for name, packages in names_and_packages)
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))


def run_in_airflow(cluster: EmbeddedCluster, directory: Path) -> dict[str, Any]:
    dag = directory / DAG.name
    dag.write_text(DAG.read_text().replace(NAMESERVER, cluster.nameserver))
    environment = os.environ | {
        "PYTHONPATH": packages_of(("airflow-3.3", AIRFLOW)),
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


def environment_of(home: Path, packages: str) -> dict[str, str]:
    """Returns the environment of an Airflow with its files in `home`, on a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        api = str(server.getsockname()[1])
    settings = {
        "CORE": {
            "DAGS_FOLDER": str(home / "dags"),
            "LOAD_EXAMPLES": "False",
            "DAGS_ARE_PAUSED_AT_CREATION": "False",
            "EXECUTOR": "LocalExecutor",
            "PARALLELISM": "1",
            "EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{api}/execution/",
        },
        "API": {"HOST": "127.0.0.1", "PORT": api, "WORKERS": "1", "BASE_URL": f"http://127.0.0.1:{api}"},
        "API_AUTH": {"JWT_SECRET": secrets.token_hex(32)},
        "TRIGGERER": {"DEFAULT_CAPACITY": "4"},
    }
    variables = {
        f"AIRFLOW__{section}__{name}": value for section, names in settings.items() for name, value in names.items()
    }
    return os.environ | {"PYTHONPATH": packages, "AIRFLOW_HOME": str(home), **variables}


class RunningAirflow:
    """Airflow's four processes on a new database; `logs` has the last lines of each, and `wait_ready` says when."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._airflow = [sys.executable, "-m", "airflow"]
        self._processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        self._lines = {name: deque[str](maxlen=40) for name in SERVERS}
        self._api_ready = threading.Event()

    def __enter__(self) -> RunningAirflow:
        migrate = [*self._airflow, "db", "migrate"]
        migrated = subprocess.run(migrate, capture_output=True, text=True, timeout=120, env=self._environment)
        assert migrated.returncode == 0, migrated.stderr[-3000:]
        for name, options in SERVERS.items():
            process = subprocess.Popen(
                [*self._airflow, name, *options],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=self._environment,
                start_new_session=True,
            )
            self._processes.append(process)
            reader = threading.Thread(target=self._read, args=(name, process), daemon=True)
            self._readers.append(reader)
            reader.start()
        return self

    def __exit__(self, *details: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(ENDS_WITHIN)
            finally:  # its own children that are left
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        for reader in self._readers:
            reader.join(ENDS_WITHIN)

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._lines[name].append(line[:300])
                if name == "api-server" and "Application startup complete" in line:
                    self._api_ready.set()

    def wait_ready(self) -> bool:
        """Waits for the server that each task reports to: a task that begins before it fails."""
        return self._api_ready.wait(120)

    def logs(self) -> str:
        return "\n".join(f"--- {name}\n{''.join(lines)}" for name, lines in self._lines.items())


@pytest.mark.soak
@pytest.mark.timeout(900)  # as above, and 80 MB more
def test_a_message_starts_a_run_in_airflows_own_processes(tmp_path: Path) -> None:
    """A triggerer waits for the message of an asset's watcher, and a scheduler runs the DAG with it to its end."""
    packages = packages_of(("airflow-3.3", AIRFLOW), ("airflow-3.3-processes", PROCESSES))
    (tmp_path / "dags").mkdir()
    waiting = threading.Event()

    async def look(request: Command, peer: Peer) -> Pass:
        if request.ext["consumerGroup"] == "airflow-orders":
            waiting.set()
        return PASS

    with EmbeddedCluster(topics={"orders": 1, "confirmed": 1}) as cluster:
        text = DAG.read_text().replace(NAMESERVER, cluster.nameserver)
        text = text.replace("@dag(schedule=[orders])", "@dag(schedule=[orders], on_success_callback=ended)")
        text = text.replace("return [", "return sent([").replace('["messages"]]', '["messages"]])')
        (tmp_path / "dags" / DAG.name).write_text(SENDING + text)
        cluster.control(RequestCode.PULL_MESSAGE, look)
        with (
            RunningAirflow(environment_of(tmp_path, packages)) as airflow,
            LitePullConsumer(
                "t", nameserver=cluster.nameserver, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
            ) as consumer,
        ):
            consumer.subscribe("confirmed")
            assert airflow.wait_ready(), airflow.logs()
            assert waiting.wait(120), airflow.logs()
            with Producer("orders", nameserver=cluster.nameserver) as producer:
                producer.send(Message("orders", b"two boxes of tea"))
            for expected in (b"two boxes of tea", b"order_arrived: success"):
                messages = consumer.poll(120)
                assert [message.body for message in messages] == [expected], airflow.logs()
