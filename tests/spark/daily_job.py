"""A batch of a scheduler, which runs it again until it ends well: python -m tests.spark.daily_job NAMESERVER DIRECTORY

It writes the rows of the day in DIRECTORY/day as a committed batch.
"""

import sys
from pathlib import Path

from tests.spark.soak_job import session

ROWS_A_DAY = 20_000


def main(nameserver: str, directory: Path) -> None:
    day = int((directory / "day").read_text())
    spark = session()
    spark.sparkContext.setLogLevel("OFF")
    numbers = spark.range(day * ROWS_A_DAY, (day + 1) * ROWS_A_DAY, 1, 4)
    writer = numbers.selectExpr("cast(id as string) as body").write.format("rocketmq").mode("append")
    writer = writer.options(nameServer=nameserver, topic="days", maxBatchBytes=2000, requestTimeoutMs=1000)
    writer.options(delivery="committed", txnAppId="daily", txnVersion=day).save()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
