"""The table of options: names, types, defaults, and the errors for any others."""

import pickle
import re
from contextlib import suppress
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import MessageQueue, RocketMQError
from pyrmq_spark import kafka_hints
from pyrmq_spark.offsets import NoMatchStrategy
from pyrmq_spark.options import (
    KNOWN,
    NAMES,
    TABLES,
    ConnectionOptions,
    SourceOptions,
    check_names,
    read_connection,
    read_sink,
    read_source,
)
from pyrmq_spark.positions import AtTime, Word
from pyrmq_spark.spark_errors import InvalidOption, one_line

NAME_SERVER = {"nameServer": "127.0.0.1:9876"}


def reported(error: pytest.ExceptionInfo[BaseException]) -> str:
    assert isinstance(error.value, RocketMQError)
    return one_line(error.value)


def read_all(texts: dict[str, str]) -> None:
    check_names(texts)
    read_connection({**NAME_SERVER, **texts}, {})
    read_sink(texts)
    read_source(texts)


def test_names_are_read_without_regard_to_case() -> None:
    options = read_source({"TOPIC": "orders", "minpartitions": "4", "STARTINGoffsets": "Earliest"})
    assert (options.topics, options.min_partitions, options.starting_offsets) == (("orders",), 4, Word.EARLIEST)


def test_what_is_not_set_has_rocketmqs_default() -> None:
    source = read_source({"topic": "orders"})
    sink = read_sink({})
    assert (source.tags, source.pull_batch_size, source.pull_timeout, source.fail_on_data_loss) == (
        "*",
        1024,
        20.0,
        True,
    )
    assert (sink.producer_group, sink.send_timeout, sink.request_timeout) == ("pyrmq-spark", 30.0, 3.0)
    assert (sink.retry_times_when_send_failed, sink.requests_in_flight, sink.queue_selection) == (2, 4, "partition")
    assert sink.compression == "none"


@pytest.mark.parametrize(
    ("alias", "field", "value"),
    [
        ({"subscribe": "a, b,a"}, "topics", ("a", "b")),
        ({"subscribePattern": "a.*"}, "topic_pattern", "a.*"),
        ({"topic": "a", "subExpression": "x || y"}, "tags", "x || y"),
    ],
)
def test_names_of_other_connectors_are_taken(alias: dict[str, str], field: str, value: object) -> None:
    check_names(alias)
    assert getattr(read_source(alias), field) == value


def test_an_alias_beside_its_name_is_refused() -> None:
    with pytest.raises(RocketMQError) as error:
        read_source({"topic": "a", "subscribe": "b"})
    assert reported(error) == "[RMQ_INVALID_OPTION] subscribe is another name of topic; set one of them"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("topc", "topic"), ("nameServers", "nameServer"), ("startOffsets", "startingOffsets"), ("groupId", "")],
)
def test_an_unknown_option_names_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(RocketMQError) as error:
        check_names({name: "x"})
    hint = f"did you mean {nearest}?" if nearest else "there are nameServer, "
    assert reported(error).startswith(f"[RMQ_UNKNOWN_OPTION] rocketmq has no option {name}; {hint}")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("kafka.bootstrap.servers", 'RocketMQ is found by its NameServers: option("nameServer", "host:9876")'),
        ("Kafka.Group.Id", "the group is named by consumerGroup"),
        ("kafka.ssl.truststore.location", "options of Kafka's clients have no meaning here"),
        ("includeHeaders", "Kafka's headers are the column properties"),
        ("kafkaConsumer.pollTimeoutMs", "a broker that does not answer is waited for by pullTimeoutMs"),
    ],
)
def test_an_option_of_kafkas_connector_names_its_counterpart(name: str, hint: str) -> None:
    with pytest.raises(RocketMQError) as error:
        check_names({name: "x"})
    assert reported(error).startswith(f"[RMQ_UNKNOWN_OPTION] rocketmq has no option {name}: {hint}")


def test_every_hint_names_options_that_there_are() -> None:
    for hint in kafka_hints.OPTIONS.values():
        named = set(re.findall(r"\b[a-z]+[A-Z]\w+", hint)) - {"flushDiskType", "brokerRole"}
        assert named <= set(NAMES), hint


def test_options_of_both_directions_and_of_spark_pass() -> None:
    check_names(dict.fromkeys((*NAMES, "CheckpointLocation", "queryName"), "x"))


@pytest.mark.parametrize("name", ["path", "paths"])
def test_a_path_is_refused(name: str) -> None:
    with pytest.raises(RocketMQError, match="a topic is no path"):
        check_names({name: "/tmp/x"})


# --- NameServer and credentials


def test_the_environment_stands_in_for_the_name_server() -> None:
    assert read_connection({}, {"NAMESRV_ADDR": "a:1;b:2"}).name_server == "a:1;b:2"
    assert read_connection(NAME_SERVER, {"NAMESRV_ADDR": "a:1"}).name_server == "127.0.0.1:9876"


@pytest.mark.parametrize("wrong", ["localhost", "localhost:", "a b:9876", "a:9876,b:9876", "a:70000", ";", "a:1;b"])
def test_a_name_server_that_is_no_address_is_refused_where_the_option_is_read(wrong: str) -> None:
    """On the driver, before a task starts; from the environment too."""
    for given_options, environment in (({"nameServer": wrong}, {}), ({}, {"NAMESRV_ADDR": wrong})):
        with pytest.raises(InvalidOption, match=r"option nameServer is .*host:port"):
            read_connection(given_options, environment)


@pytest.mark.parametrize("several", ["a:1;b:2", " a:1 ; b:2; ", "http://MQ_INST_1_2.mq.example:8080"])
def test_several_name_servers_and_endpoints_are_taken_as_they_are(several: str) -> None:
    assert read_connection({"nameServer": several}, {}).name_server == several.strip()


@pytest.mark.parametrize("environment", [{}, {"NAMESRV_ADDR": " "}])
def test_without_a_name_server_it_says_where_to_name_one(environment: dict[str, str]) -> None:
    with pytest.raises(RocketMQError) as error:
        read_connection({}, environment)
    assert reported(error).startswith("[RMQ_INVALID_OPTION] no NameServer is named: set option")


def test_secrets_are_in_no_repr_and_in_no_error() -> None:
    given_options = {**NAME_SERVER, "accessKey": "AK-secret", "secretKey": "SK-secret", "securityToken": "ST-secret"}
    connection = read_connection(given_options, {})
    assert (connection.access_key, connection.secret_key) == ("AK-secret", "SK-secret")
    assert "secret" not in repr(connection).replace("secret_key", "")
    assert pickle.loads(pickle.dumps(connection)) == connection
    with pytest.raises(RocketMQError) as error:
        read_connection({**NAME_SERVER, "secretKey": "SK-secret"}, {})
    assert "SK-secret" not in reported(error)


def test_equal_settings_are_one_key() -> None:
    assert hash(read_connection(NAME_SERVER, {})) == hash(ConnectionOptions(name_server="127.0.0.1:9876"))


def test_tls_files_need_tls() -> None:
    with pytest.raises(RocketMQError, match="need useTls=true"):
        read_connection({**NAME_SERVER, "tlsCaFile": "ca.pem"}, {})
    assert read_connection({**NAME_SERVER, "tlsCaFile": "ca.pem", "useTls": "true"}, {}).tls_ca_file == "ca.pem"


# --- What to read


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        ({}, "one of them has to be set"),
        ({"topic": "a", "assign": '{"a":{"b":[0]}}'}, "only one of them may be set, not topic and assign"),
        ({"topic": " , "}, "names no topic"),
        ({"topicPattern": "("}, "is no regular expression"),
        ({"assign": "{}"}, "at least one topic"),
    ],
)
def test_exactly_one_choice_of_topics(chosen: dict[str, str], text: str) -> None:
    with pytest.raises(RocketMQError, match=text):
        read_source(chosen)


def test_queues_are_assigned_by_json() -> None:
    options = read_source({"assign": '{"a":{"broker-b":[1,0],"broker-a":[2]}}'})
    assert options.assign == (
        MessageQueue("a", "broker-a", 2),
        MessageQueue("a", "broker-b", 0),
        MessageQueue("a", "broker-b", 1),
    )


def test_of_several_positions_the_time_wins() -> None:
    texts = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"a": 6}',
        "startingOffsets": "earliest",
    }
    named = []
    while texts:
        named.append(read_source({"topic": "a", **texts}).start(Word.LATEST)[1])
        texts.pop(named[-1])
    assert named == ["startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"]
    assert read_source({"topic": "a"}).start(Word.EARLIEST) == (Word.EARLIEST, "startingOffsets")
    assert read_source({"topic": "a", "endingTimestamp": "7"}).end() == (AtTime(7), "endingTimestamp")
    assert read_source({"topic": "a"}).end()[0] is Word.LATEST


def test_committed_needs_a_group() -> None:
    with pytest.raises(RocketMQError, match="needs consumerGroup"):
        read_source({"topic": "a", "startingOffsets": "committed"})
    assert read_source({"topic": "a", "startingOffsets": "committed", "consumerGroup": "g"}).consumer_group == "g"


def test_options_of_streams_are_listed_for_a_batch() -> None:
    options = read_source({"topic": "a", "maxOffsetsPerTrigger": "10", "maxTriggerDelay": "1m"})
    assert options.streaming_only == ("maxOffsetsPerTrigger", "maxTriggerDelay")


# --- Values


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("minPartitions", "a", "'a'; it must be a whole number from 1 to"),
        ("minPartitions", "1.0", "whole number"),
        ("minPartitions", "0", "whole number"),
        ("minPartitions", "-1", "whole number"),
        ("pullBatchSize", "99999999999", "whole number"),
        ("failOnDataLoss", "yes", "one of true, false"),
        ("startingOffsetsByTimestampStrategy", "none", "one of error, latest"),
        ("tags", " ", "option tags is empty"),
        ("startingOffsets", "first", "write earliest, latest, committed"),
    ],
)
def test_a_wrong_value_is_reported_with_its_option(name: str, value: str, text: str) -> None:
    with pytest.raises(RocketMQError) as error:
        read_source({"topic": "a", name: value})
    assert name in reported(error)
    assert text in reported(error)


def test_streams_make_ids_of_content_unless_set_otherwise() -> None:
    assert read_sink({}).message_ids == "unique"
    assert read_sink({}, stream=True).message_ids == "content"
    assert read_sink({"messageIds": "unique"}, stream=True).message_ids == "unique"


def test_queues_of_a_topic_that_is_not_created_are_refused() -> None:
    with pytest.raises(InvalidOption, match="topicQueueNums needs createTopic=normal or batch"):
        read_sink({"topicQueueNums": "8"})


@pytest.mark.parametrize("options", [{"onRejected": "deadLetter"}, {"deadLetterTopic": "refused"}])
def test_dead_letters_need_both_their_options(options: dict[str, str]) -> None:
    with pytest.raises(InvalidOption, match="onRejected=deadLetter and deadLetterTopic belong together"):
        read_sink(options)


def test_dead_letters_go_to_another_topic() -> None:
    with pytest.raises(InvalidOption, match="deadLetterTopic is orders, the topic that is written to"):
        read_sink({"onRejected": "deadLetter", "deadLetterTopic": "orders", "topic": "orders"})


def test_the_default_of_what_is_not_built_may_be_said() -> None:
    assert read_sink({"messageIds": "unique", "createTopic": "AUTO", "onRejected": "fail"}) == read_sink({})


@given(st.dictionaries(st.sampled_from(sorted(KNOWN)), st.text(max_size=20), max_size=6))
def test_any_text_is_read_or_refused_by_a_named_error(texts: dict[str, str]) -> None:
    for read in (check_names, read_source, read_sink, lambda texts: read_connection(texts, {})):
        with suppress(RocketMQError):
            read(texts)


def test_a_text_of_several_lines_is_reported_in_one() -> None:
    with pytest.raises(RocketMQError) as error:
        read_source({"topic": "a", "assign": "{\n\n"})
    assert "\n" not in reported(error)


def test_every_line_of_the_table_reads_its_default_back() -> None:
    for table in TABLES:
        for line in fields(table):
            if isinstance(line.default, str) and line.default:
                assert line.metadata["parse"](line.default, line.metadata["name"]) == line.default


def test_strategies_are_words() -> None:
    options = read_source({"topic": "a", "startingOffsetsByTimestampStrategy": "LATEST"})
    assert options == SourceOptions(topics=("a",), starting_strategy=NoMatchStrategy.LATEST)


COMMITTED = {"topic": "orders", "delivery": "committed"}


@pytest.mark.parametrize(
    ("options", "stream", "fault"),
    [
        ({"delivery": "committed"}, False, "delivery=committed writes to one topic: name it by the option topic"),
        ({"topic": "orders", "txnAppId": "a", "txnVersion": "1"}, False, "txnAppId needs delivery=committed"),
        ({"topic": "orders", "manifestTopic": "m"}, False, "manifestTopic needs delivery=committed"),
        (COMMITTED | {"txnAppId": "a"}, False, "txnAppId and txnVersion belong together"),
        (COMMITTED | {"txnAppId": "a", "txnVersion": "-1"}, False, "txnVersion is '-1'"),
        (COMMITTED | {"txnAppId": "a" * 256, "txnVersion": "1"}, False, "txnAppId has 256 characters; 255 at most"),
        (COMMITTED | {"txnAppId": "a", "txnVersion": "1"}, True, "txnAppId is for batch writes"),
        (COMMITTED | {"manifestTopic": "orders"}, True, "manifestTopic is orders, to which rows are written"),
        (
            COMMITTED | {"topic": "t" * 118},
            True,
            "has 128 characters, and a topic 127 at most: name a shorter one by man",
        ),
        (
            COMMITTED | {"asyncProgressTrackingEnabled": "true"},
            True,
            "asyncProgressTrackingEnabled: Spark then",
        ),
    ],
)
def test_a_committed_write_that_cannot_be_is_refused(options: dict[str, str], stream: bool, fault: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(fault)):
        read_sink(options, stream=stream)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"topicPattern": "o.*", "isolation": "committed"}, "isolation=committed reads one topic and its manifest"),
        ({"topic": "a,b", "isolation": "committed"}, "isolation=committed reads one topic and its manifest"),
        ({"topic": "a", "manifestTopic": "m"}, "manifestTopic needs isolation=committed"),
        (
            {"topic": "t" * 118, "isolation": "committed"},
            "has 128 characters, and a topic 127 at most: name a shorter one",
        ),
        ({"topic": "a", "isolation": "committed", "maxBytesPerTrigger": "9"}, "maxBytesPerTrigger: a manifest has no"),
    ],
)
def test_a_committed_read_that_cannot_be_is_refused(options: dict[str, str], fault: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(fault)):
        read_source(options)


def test_a_committed_read_chooses_records_of_its_manifest() -> None:
    options = read_source({"topic": "orders", "tags": "a", "isolation": "committed", "namespace": "shop"})
    records = options.of_manifest()
    assert (records.topics, records.tags, records.is_committed) == (("shop%orders-committed",), "*", False)
    named = read_source({"topic": "dead", "manifestTopic": "m", "isolation": "committed", "namespace": "shop"})
    assert named.of_manifest().topics == ("shop%m",)
    plain = read_source({"topic": "orders"})
    assert plain.of_manifest() is plain
