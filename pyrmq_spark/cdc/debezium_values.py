"""Reads values of Debezium's JSON as the types of a table, by the schema in the message where the JSON is not enough.

The names of types are those of `io.debezium.time`, `io.debezium.data` and `org.apache.kafka.connect.data` (3.6).
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from pyrmq_spark.cdc.columns import Field, Row

if TYPE_CHECKING:
    from pyspark.sql import Column

# Types that are read as texts, since the JSON of their values has several forms.
AS_TEXT: Final = ("decimal", "date", "timestamp", "timestamp_ntz", "binary")
FIELDS: Final = "field string, name string, type string, parameters struct<scale:string>"
SCHEMA: Final = f"struct<fields:array<struct<field:string,fields:array<struct<{FIELDS}>>>>>"
DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
VARIABLE_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"
DATES: Final = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
# By the type of a timestamp without a time zone: the factor and the divisor from its unit to microseconds.
TIMESTAMPS: Final = {
    "io.debezium.time.Timestamp": (1000, 1),
    "org.apache.kafka.connect.data.Timestamp": (1000, 1),
    "io.debezium.time.MicroTimestamp": (1, 1),
    "io.debezium.time.NanoTimestamp": (1, 1000),
}
ISO_TIMESTAMP: Final = "io.debezium.time.IsoTimestamp"
ZONED_TIMESTAMP: Final = "io.debezium.time.ZonedTimestamp"
ENUM: Final = "io.debezium.data.Enum"
NUMBER: Final = "^-?[0-9]+$"
ISO_DATE: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}Z?$"
ISO: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+"
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # the years 1 to 9999
MICROS_PER_DAY: Final = 86_400_000_000
DOUBLE_DIGITS: Final = 15  # decimal digits that each double has exactly
INTEGERS: Final = ("int", "integer", "bigint", "long")


class Parsed(NamedTuple):
    """A value of a row in a message: the JSON's `value`, and the `field` to read it as.

    `token` is its type in the message's schema, a struct of `FIELDS`, or null if the message has no schema. `exact` is
    the value read as the declared type, which keeps all digits of a number. `text` is the message, and `connector` the
    Debezium connector that wrote it.
    """

    value: Column
    field: Field
    token: Column
    exact: Column
    text: Column
    connector: Column


def read_type(field: Field) -> str:
    return "string" if field.kind in AS_TEXT else field.type


def typed(parsed: Parsed) -> Column:
    """Returns a value in the type of its column, or null if it does not fit."""
    match parsed.field.kind:
        case "decimal":
            return _decimal(parsed)
        case "date":
            return _date(parsed)
        case "timestamp":
            is_zoned = parsed.value.rlike(f"{ISO}(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})$")
            is_zoned &= F.coalesce(parsed.token["name"] == ZONED_TIMESTAMP, F.lit(True))
            return F.when(is_zoned, parsed.value.try_cast("timestamp"))
        case "timestamp_ntz":
            return _local_timestamp(parsed)
        case "binary":
            return _binary(parsed)
        case _:
            return parsed.value


def unescaped(value: Column, text: Column, name: str) -> Column:
    """Removes the backslashes that Debezium writes before commas in the labels of MySQL's ENUM. Other values stay.

    `text` is the message, whose schema has the type of the column `name`.
    """
    fields = F.from_json(text, f"schema {SCHEMA}").getField("schema")["fields"]
    is_enum = token_of(after_fields(fields), name)["name"] == ENUM
    return F.when(is_enum, F.replace(value, F.lit("\\,"), F.lit(","))).otherwise(value)


def after_fields(fields: Column) -> Column:
    return F.get(F.filter(fields, lambda part: part["field"] == "after"), F.lit(0))["fields"]


def token_of(fields: Column, name: str) -> Column:
    return F.get(F.filter(fields, lambda part: part["field"] == name), F.lit(0))


def _decimal(parsed: Parsed) -> Column:
    """Returns a decimal from a text, a number, or the bytes of `decimal.handling.mode=precise`, or null if ambiguous.

    Without a schema, a text of digits may also be such bytes in base 64. A JSON number with more digits than a double
    has may have lost some. A negative integer of MySQL may be an unsigned one beyond `bigint`.
    """
    value, field, token = parsed.value, parsed.field, parsed.token
    plain = value.try_cast(field.type)
    is_bytes = F.coalesce(token["name"] == DECIMAL, F.lit(False))
    maybe_bytes = token["name"].isNull() & (F.length(value) % 4 == 0) & value.rlike("^[0-9]+$")
    maybe_bytes &= F.lit(field.scale > 0) & token.isNull() | value.rlike("^0[0-9]")
    is_text = parsed.text.contains(f'"{field.name}":"') | parsed.text.contains(f'"{field.name}": "')
    digits = F.length(F.btrim(F.regexp_replace(parsed.exact.cast("string"), "[.-]", ""), F.lit("0")))
    of_number = F.when((digits <= DOUBLE_DIGITS) | (digits > DOUBLE_DIGITS + 2), parsed.exact)
    is_long = (F.length(value) > DOUBLE_DIGITS + 1) & value.rlike("[.E]")
    is_unsigned = value.startswith("-") & parsed.connector.isin("mysql", "mariadb") & value.rlike("^-[0-9]+$")
    of_struct = F.when(
        value.startswith("{"), _decoded(F.get_json_object(value, "$.value"), F.get_json_object(value, "$.scale"), field)
    )
    return (
        F.when(is_bytes, _decoded(value, token["parameters"]["scale"], field))
        .when(value.startswith("{"), of_struct)
        .when(maybe_bytes, None)
        .when(is_long, F.when(is_text, plain).otherwise(of_number))
        .when(is_unsigned, F.when(is_text, plain))
        .otherwise(plain)
    )


def _decoded(value: Column, scale: Column, field: Field) -> Column:
    digits = F.hex(F.try_to_binary(value, F.lit("base64")))
    sign = F.when(digits.rlike("^[89A-F]"), "F").otherwise("0")
    padded = F.lpad(digits, 32, sign)
    high = F.conv(F.substring(padded, 1, 16), 16, -10).cast("decimal(20,0)")
    low = F.conv(F.substring(padded, 17, 16), 16, 10).cast("decimal(20,0)")
    unscaled = F.try_add(F.try_multiply(high, F.lit("18446744073709551616").cast("decimal(20,0)")), low)
    negative_scale = (-scale.cast("int")).cast("string")
    return F.when(
        F.length(digits) <= 32, F.concat(unscaled.cast("string"), F.lit("E"), negative_scale).try_cast(field.type)
    )


def _date(parsed: Parsed) -> Column:
    value = parsed.value
    days = F.when(value.rlike(NUMBER), value.try_cast("int"))
    is_day = parsed.token["name"].isin(*DATES) & days.between(FIRST_DAY, LAST_DAY)
    of_days = F.date_add(F.lit("1970-01-01").cast("date"), days)
    return F.when(is_day, of_days).when(value.rlike(ISO_DATE), F.substring(value, 1, 10).try_cast("date"))


def _local_timestamp(parsed: Parsed) -> Column:
    value, name = parsed.value, parsed.token["name"]
    number = F.when(value.rlike(NUMBER), value.try_cast("bigint"))
    micros = F.lit(None).cast("bigint")
    for word, (factor, divisor) in TIMESTAMPS.items():
        scaled = F.try_multiply(number, F.lit(factor).cast("bigint"))
        if divisor > 1:
            scaled = ((scaled - F.pmod(scaled, F.lit(divisor))) / divisor).cast("bigint")
        micros = F.when(name == word, scaled).otherwise(micros)
    is_in_range = micros.between(FIRST_DAY * MICROS_PER_DAY, (LAST_DAY + 1) * MICROS_PER_DAY - 1)
    epoch = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
    of_number = F.when(is_in_range, F.timestamp_add("MICROSECOND", micros, epoch))
    of_text = F.when(name == ISO_TIMESTAMP, F.rtrim(value, F.lit("Z"))).when(value.rlike(f"{ISO}$"), value)
    return F.when(number.isNotNull(), of_number).otherwise(of_text.try_cast("timestamp_ntz"))


def _binary(parsed: Parsed) -> Column:
    """Returns the bytes of a text in base 64, or null if it may be hexadecimal. A `bytes` type excludes that."""
    maybe_hex = parsed.value.rlike("^[0-9a-fA-F]+$") & F.coalesce(parsed.token["type"] != "bytes", F.lit(True))
    return F.when(~maybe_hex, F.try_to_binary(parsed.value, F.lit("base64")))


class Placeholder(NamedTuple):
    """The text `word` that Debezium writes in place of an unchanged long value, which PostgreSQL does not send."""

    word: str

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that stand for a value: the word, its bytes in base 64 or in hex, and a JSON map of the word."""
        octets = self.word.encode()
        in_base_64 = base64.b64encode(octets).decode()
        return self.word, in_base_64, octets.hex(), f'{{"{self.word}":"{self.word}"}}'

    def stands_in(self, value: Column, field: Field) -> Column | None:
        """Returns the condition that `value` is the placeholder, or None for a field whose type excludes it."""
        match field.kind:
            case "string" | "decimal" | "binary":
                return value.isin(*self.texts)
            case "array" if field.element in INTEGERS:
                return value == F.array(*(F.lit(octet).cast(field.element) for octet in self.word.encode()))
            case "array" if field.element == "string":
                texts = (*self.texts, str(_uuid_of(self.word)))
                return (F.size(value) == 1) & F.get(value, F.lit(0)).isin(*texts)
            case "map":
                return F.map_contains_key(value, self.word)
            case _:
                return None


def hidden(value: Column, field: Field) -> Column | None:
    """Returns the condition that a null may stand for an unchanged long array, or None for a type without such nulls.

    PostgreSQL does not send long values that an update left unchanged. Debezium writes a placeholder for them, but null
    for arrays of other elements than integers.
    """
    if field.kind == "array" and field.element not in INTEGERS:
        return value.isNull()
    return None


def is_flattened(value: Column, field: Field) -> Column | None:
    """Returns the condition that an array has only nulls, or None for any other type.

    Debezium writes arrays of several dimensions in this way, without their values.
    """
    if field.kind != "array":
        return None
    return (F.size(value) > 0) & ~F.exists(value, lambda item: item.isNotNull())


def first_name(row: Row, conditions: list[Column | None]) -> Column:
    cases = [
        F.when(is_so, F.lit(field.name)) for field, is_so in zip(row, conditions, strict=True) if is_so is not None
    ]
    return F.coalesce(*cases) if cases else F.lit(None).cast("string")


def _uuid_of(word: str) -> uuid.UUID:
    return uuid.UUID(bytes=hashlib.md5(word.encode(), usedforsecurity=False).digest(), version=3)
