"""The clients of this Python worker, one for each set of connection options, opened when needed and then kept.

Spark reuses its workers from task to task, and ends them at any moment without notice. So nothing here needs to be
closed, nothing is ever pickled, and a child after `fork` opens its own connections (`pyrmq_core.blocking`). A class is
loaded when its name in `blocking` is first used, so that a process that only reads does not load the producer.
"""

from __future__ import annotations

import ssl
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from pyrmq_core import blocking, with_namespace
from pyrmq_spark.options import ConnectionOptions, SinkOptions, SourceOptions
from pyrmq_spark.spark_errors import InvalidOption

# The most connection settings whose clients a worker keeps. Beyond it, the least recently used client is closed.
MAX_CLIENTS: Final = 8
DEFAULT_CONSUMER_GROUP: Final = "pyrmq-spark"


@dataclass(slots=True)
class _CachedClient:
    client: blocking.Client
    producers: dict[str, tuple[tuple[object, ...], blocking.Producer]] = field(default_factory=dict)
    consumers: dict[str, blocking.PullConsumer] = field(default_factory=dict)
    admin: blocking.Admin | None = None

    def close(self) -> None:
        for _, producer in self.producers.values():
            producer.close()
        for consumer in self.consumers.values():
            consumer.close()
        if self.admin is not None:
            self.admin.close()
        self.client.close()


_clients: OrderedDict[ConnectionOptions, _CachedClient] = OrderedDict()
_lock = threading.Lock()


def producer(connection: ConnectionOptions, options: SinkOptions) -> blocking.Producer:
    """Returns this worker's producer for the producer group in the options, which is opened when first needed.

    There is one for each connection and group. If other settings are requested, it is closed and replaced.
    """
    settings = (
        options.send_timeout,
        options.request_timeout,
        options.retry_times_when_send_failed,
        options.retry_another_broker_when_not_store_ok,
        options.default_topic_queue_nums,
        options.send_latency_fault_enable,
    )
    with _lock:
        cached = _client(connection)
        kept = cached.producers.get(options.producer_group)
        if kept is not None and kept[0] == settings:
            return kept[1]
        if kept is not None:
            kept[1].close()
        opened = blocking.Producer(
            options.producer_group,
            client=cached.client,
            namespace=connection.namespace,
            send_latency_fault_enable=options.send_latency_fault_enable,
            send_timeout=options.send_timeout,
            timeout_per_attempt=options.request_timeout,
            retry_times_when_send_failed=options.retry_times_when_send_failed,
            retry_another_broker_when_not_store_ok=options.retry_another_broker_when_not_store_ok,
            default_topic_queue_nums=options.default_topic_queue_nums,
        )
        cached.producers[options.producer_group] = (settings, opened)
        return opened


def consumer(connection: ConnectionOptions, group: str) -> blocking.PullConsumer:
    """Returns the worker's pull consumer of this group, in its namespace. It sends no heartbeats."""
    group = with_namespace(group, connection.namespace)
    with _lock:
        cached = _client(connection)
        if group not in cached.consumers:
            # The consumer has no namespace: topics and group are already names on brokers.
            cached.consumers[group] = blocking.PullConsumer(group, client=cached.client, namespace="")
        return cached.consumers[group]


def consumer_of(connection: ConnectionOptions, options: SourceOptions) -> blocking.PullConsumer:
    return consumer(connection, options.consumer_group or DEFAULT_CONSUMER_GROUP)


def admin(connection: ConnectionOptions) -> blocking.Admin:
    with _lock:
        cached = _client(connection)
        cached.admin = cached.admin or blocking.Admin(client=cached.client, namespace="")
        return cached.admin


def name_on_brokers(connection: ConnectionOptions, topic: str) -> str:
    return with_namespace(topic, connection.namespace)


def close() -> None:
    """Closes every client, for a process that continues with other work. The next task opens new clients."""
    with _lock:
        while _clients:
            _clients.popitem()[1].close()


def _client(connection: ConnectionOptions) -> _CachedClient:
    cached = _clients.get(connection)
    if cached is None:
        cached = _clients[connection] = _CachedClient(
            blocking.Client(
                nameserver=connection.name_server or None,
                nameserver_url=connection.name_server_url,
                namespace_v2=connection.namespace_v2,
                unit_name=connection.unit_name,
                poll_nameserver_interval=connection.poll_name_server_interval,
                access_key=connection.access_key,
                secret_key=connection.secret_key,
                security_token=connection.security_token,
                tls=_tls(connection),
            )
        )
        if len(_clients) > MAX_CLIENTS:
            _clients.popitem(last=False)[1].close()
    _clients.move_to_end(connection)
    return cached


def _tls(connection: ConnectionOptions) -> ssl.SSLContext | None:
    if not connection.use_tls:
        return None
    try:
        context = ssl.create_default_context(cafile=connection.tls_ca_file)
        if connection.tls_cert_file is not None:
            context.load_cert_chain(connection.tls_cert_file, connection.tls_key_file)
    except OSError as error:
        files = ", ".join(
            file for file in (connection.tls_ca_file, connection.tls_cert_file, connection.tls_key_file) if file
        )
        raise InvalidOption(
            f"the TLS files ({files}) cannot be loaded: {error}; each executor needs them at the same path"
        ) from error
    if not connection.tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
