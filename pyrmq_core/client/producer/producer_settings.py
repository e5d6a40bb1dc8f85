"""The settings of a producer, which are the parameters of the trio, blocking and asyncio `Producer`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyrmq_core.client.arguments import instance_of, seconds_of, tuple_of
from pyrmq_core.client.client_settings import AnyClient, ClientChoice
from pyrmq_core.client.producer.bulk.accumulator import Batching
from pyrmq_core.client.producer.bulk.pending_sends import check_bounds
from pyrmq_core.client.producer.send.fault_latency import FaultLatencySettings
from pyrmq_core.client.producer.send.hooks import ProducerHook, ProducerHooks
from pyrmq_core.client.producer.send.send_options import SendSettings
from pyrmq_core.client.producer.transactions import TransactionListener
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.messages.names import check_group
from pyrmq_core.protocol.messages.trace import TRACE_TOPIC
from pyrmq_core.protocol.shown_values import shown


@dataclass(frozen=True, kw_only=True)
class ProducerSettings(SendSettings, ClientChoice[AnyClient]):
    """A producer's settings. `AnyClient` is the trio, blocking or asyncio `Client`."""

    send_timeout: float = 3.0
    send_latency_fault_enable: bool = False
    fault_latency: FaultLatencySettings = FaultLatencySettings()  # noqa: RUF009 - a frozen value
    compress_body_over_bytes: int = 4096
    compression: str = "zlib"
    max_message_bytes: int = 4 * 1024 * 1024
    max_in_flight: int = 10_000
    max_in_flight_bytes: int = 100 * 1024 * 1024
    batching: Batching | bool | None = None
    transaction_listener: TransactionListener | None = None
    hooks: Sequence[ProducerHook] = ()
    trace: bool | str = False

    def __post_init__(self) -> None:
        check_group(self.group)
        ClientChoice.__post_init__(self)
        SendSettings.__post_init__(self)
        seconds_of("send_timeout", self.send_timeout)
        check_bounds(self.max_in_flight, self.max_in_flight_bytes)
        instance_of("fault_latency", self.fault_latency, FaultLatencySettings, "a FaultLatencySettings")
        if self.batching is not None and not isinstance(self.batching, bool):
            instance_of("batching", self.batching, Batching, "a Batching, or True or False")
        if not isinstance(self.trace, bool):
            instance_of("trace", self.trace, str, "True, False, or the topic for traces")
        listener = self.transaction_listener
        if listener is not None and not callable(getattr(listener, "check_local_transaction", None)):
            raise InvalidArgument(f"transaction_listener={shown(listener)}: it has a function check_local_transaction")
        object.__setattr__(self, "hooks", tuple_of("hooks", self.hooks, "hooks"))
        ProducerHooks(self.hooks)

    @property
    def batches(self) -> Batching | None:
        return Batching() if self.batching is True else self.batching or None

    @property
    def trace_topic(self) -> str | None:
        return self.trace if isinstance(self.trace, str) else TRACE_TOPIC if self.trace else None
