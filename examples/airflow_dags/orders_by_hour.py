"""A DAG of Airflow 3: the orders of each hour as a file. Put `exports.py` beside it in the folder of DAGs.

Airflow is no part of this project's environment: the test runs this file and its task with stand-ins for Airflow's
names. The task itself needs none of them.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import dag, get_current_context, task
from airflow.timetables.interval import CronDataIntervalTimetable
from exports import export_between

NAMESERVER = "127.0.0.1:9876"
DIRECTORY = Path("/var/spool/orders")


# A plain "@hourly" would start runs whose interval is empty: by default, Airflow 3 makes intervals for this timetable
# alone. At three minutes past, the messages of the hour before are long readable.
@dag(
    schedule=CronDataIntervalTimetable("3 * * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=True,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=2)},
)
def orders_by_hour() -> None:
    @task
    def export() -> int:
        """Exports the run's interval; run again, it writes the same file."""
        context = get_current_context()
        late = timedelta(minutes=3)
        start, end = context["data_interval_start"] - late, context["data_interval_end"] - late
        return export_between(NAMESERVER, "orders", DIRECTORY, start, end)

    export()


orders_by_hour()
