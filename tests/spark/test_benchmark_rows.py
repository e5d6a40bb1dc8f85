"""The rows of benchmarks, as Spark makes them: those that every other client gets."""

import pytest
from pyspark.sql import SparkSession

from benchmarks.support.spark_jobs import messages
from benchmarks.support.user_rows import CASES, Case


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_spark_makes_the_same_rows(spark: SparkSession, case: Case) -> None:
    rows = messages(spark, case, 2000, 2).toArrow().to_pylist()
    numbers = {case.key(number): number for number in range(2000)}
    for row in rows:
        number = numbers.pop(row["keys"])
        assert (bytes(row["body"]), row["tags"]) == (case.body(number), case.tag(number))
        assert dict(row.get("properties") or []) == case.properties(number)
    assert not numbers
