"""`CREATE TABLE ... USING rocketmq`: its options are accepted and checked, and their secrets are never shown."""

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pyrmq_core import Message
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_spark.options import check_names, read_connection, read_source
from pyrmq_spark.spark_errors import InvalidOption, UnknownOption
from tests.support.spark import wait_readable

SECRETS = ("AK-visible", "SK-visible")
OF_A_TABLE = {"provider": "rocketmq", "owner": "ann", "topic": "orders", "option.topic": "orders"}


def test_what_spark_adds_to_the_options_of_a_table_is_no_option() -> None:
    check_names(OF_A_TABLE)
    check_names(OF_A_TABLE | {"secretkey": "s", "option.secretkey": "s", "comment": "rows"})
    for given in ({"option.topic": "orders"}, {"owner": "ann"}, OF_A_TABLE | {"topix": "orders"}):
        with pytest.raises(UnknownOption):
            check_names(given)


def test_a_table_without_its_options_says_how_to_name_them() -> None:
    with pytest.raises(InvalidOption, match=r"keeps no option of CREATE TABLE: write SELECT .* WITH \(nameServer"):
        read_connection({}, {})
    with pytest.raises(InvalidOption, match="keeps no option of CREATE TABLE"):
        read_source({})
    with pytest.raises(InvalidOption) as error:
        read_connection({"topic": "orders"}, {})
    assert "CREATE TABLE" not in str(error.value)


@pytest.fixture
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Names of tables that are dropped afterwards."""
    names: list[str] = []
    yield names
    for name in names:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.spark
def test_a_table_with_secrets_is_made_and_read_and_shows_none(
    spark: SparkSession, cluster: EmbeddedCluster, tables: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    name = f"orders_{uuid.uuid4().hex[:8]}"
    tables.append(name)
    with Admin(nameserver=cluster.nameserver) as admin, Producer("setup", nameserver=cluster.nameserver) as producer:
        admin.create_topic(name, queues=1)
        producer.send(Message(name, b"one"))
        wait_readable(cluster.nameserver, name, 1)
    options = f"nameServer '{cluster.nameserver}', topic '{name}', accessKey '{SECRETS[0]}', secretKey '{SECRETS[1]}'"
    spark.sql(f"CREATE TABLE {name} USING rocketmq OPTIONS ({options})")
    rows = spark.sql(f"SELECT cast(body AS string) AS body FROM {name} WITH ({options})")
    assert [row.body for row in rows.collect()] == ["one"]
    shown = [
        rows._jdf.queryExecution().toString(),
        *(str(spark.sql(f"{what} {name}").collect()) for what in ("DESCRIBE EXTENDED", "SHOW CREATE TABLE")),
        str(spark.sql(f"SHOW TBLPROPERTIES {name}").collect()),
        *capfd.readouterr(),
    ]
    with pytest.raises(Exception, match="keeps no option of CREATE TABLE") as error:
        spark.sql(f"SELECT * FROM {name}").collect()
    for text in [*shown, str(error.value)]:
        assert not any(secret in text for secret in SECRETS)


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_an_insert_names_the_options_of_its_table(
    spark: SparkSession, cluster: EmbeddedCluster, tables: list[str]
) -> None:
    """The catalog keeps the columns, and no option."""
    name = f"orders_{uuid.uuid4().hex[:8]}"
    tables.append(name)
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic(name, queues=1)
    options = f"nameServer '{cluster.nameserver}', topic '{name}'"
    spark.sql(f"CREATE TABLE {name} (body STRING, tags STRING) USING rocketmq OPTIONS ({options})")
    spark.sql(f"INSERT INTO {name} WITH ({options}) VALUES ('one', 'paid'), ('two', NULL)")
    wait_readable(cluster.nameserver, name, 2)
    rows = spark.sql(f"SELECT body, tags FROM {name} WITH ({options})").collect()
    assert sorted(map(tuple, rows)) == [("one", "paid"), ("two", None)]
    with pytest.raises(Exception, match="keeps no option of CREATE TABLE"):
        spark.sql(f"INSERT INTO {name} VALUES ('three', 'paid')")
