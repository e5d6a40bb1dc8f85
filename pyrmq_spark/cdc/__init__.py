"""Change data capture: the messages of Canal and Debezium as rows of changes, by Spark SQL expressions without UDFs.

A change row has `op` (insert, update or delete), `key`, `before`, `after` and `sequence`, which orders the changes of a
key. An update that changes the key becomes a delete and an insert.
"""

from pyrmq_spark.cdc.canal_rows import canal
from pyrmq_spark.cdc.debezium_rows import debezium
from pyrmq_spark.cdc.sample import Finding, check
from pyrmq_spark.cdc.statements import statements
from pyrmq_spark.cdc.upsert import applied, apply, table

__all__ = ["Finding", "applied", "apply", "canal", "check", "debezium", "statements", "table"]
