"""Hints for error texts: this source's options and columns that replace those of Spark's Kafka connector. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KAFKA: Final = "kafka."
# Options of Spark's Kafka connector (KafkaSourceProvider.scala) with another or no counterpart here, in lower case.
OPTIONS: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": 'RocketMQ is found by its NameServers: option("nameServer", "host:9876")',
    "kafka.group.id": "the group is named by consumerGroup",
    "kafka.security.protocol": "TLS is useTls=true",
    "kafka.sasl.jaas.config": "who may read and write is checked by accessKey and secretKey",
    "kafka.compression.type": "bodies are compressed by the option compression",
    "kafka.acks": "every row is acknowledged, and flushDiskType and brokerRole of the broker say what it does before",
    "kafka.max.request.size": "the size of a request is maxBatchBytes",
    "groupidprefix": "there is no group of a query's own; consumerGroup publishes progress",
    "includeheaders": "Kafka's headers are the column properties, which is always there",
    "fetchoffset.numretries": "a broker that does not answer is waited for by pullTimeoutMs",
    "kafkaconsumer.polltimeoutms": "a broker that does not answer is waited for by pullTimeoutMs",
}
OTHER_KAFKA_OPTION: Final = (
    "options of Kafka's clients have no meaning here; docs/spark-kafka-compared.md has the counterparts"
)

SINK_COLUMNS: Final[Mapping[str, str]] = {
    "key": "Kafka's key is shardingKey (order) or keys (index); rename it to what is meant",
    "headers": "Kafka's headers are properties, a map<string,string>: "
    "map_from_entries(transform(headers, h -> struct(h.key, cast(h.value as string)))) as properties",
    "partition": "Kafka's partition is brokerName and queueId together; shardingKey keeps rows of one key in order",
}
SOURCE_COLUMNS: Final[Mapping[str, str]] = {
    "key": "Kafka's key is shardingKey (order) or keys (index)",
    "value": "Kafka's value is body; name body, and cast it where it is used",
    "headers": "Kafka's headers are properties, a map<string,string>",
    "partition": "Kafka's partition is brokerName and queueId together",
    "offset": "Kafka's offset is queueOffset",
    "timestamp": "Kafka's timestamp is storeTimestamp (the broker's) or bornTimestamp (the sender's)",
    "timestamptype": "storeTimestamp is the broker's time, bornTimestamp the sender's",
}


def option_hint(name: str) -> str | None:
    lower = name.lower()
    return OPTIONS.get(lower) or (OTHER_KAFKA_OPTION if lower.startswith(KAFKA) else None)
