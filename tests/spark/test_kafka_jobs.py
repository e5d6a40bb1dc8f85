"""The jobs of the benchmark beside Kafka: both connectors are given the same rows."""

import pytest
from pyspark.sql import SparkSession

from benchmarks.peers.spark_jobs import Jobs, Kafka, RocketMQ
from benchmarks.support.user_rows import CASES, Case


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_both_connectors_write_the_same_rows(spark: SparkSession, case: Case) -> None:
    theirs, ours = (
        Jobs(spark, connector).frame(20, case.name, 2).toArrow().to_pylist()
        for connector in (Kafka(spark, ""), RocketMQ(spark, ""))
    )
    for number, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        assert (bytes(their["value"]), their["key"]) == (bytes(our["body"]), our["keys"])
        headers = {header["key"]: bytes(header["value"]).decode() for header in their.get("headers") or ()}
        assert headers == dict(our.get("properties") or ()) == case.properties(number)
