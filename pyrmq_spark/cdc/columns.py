"""The columns that a caller declares for a table: a struct of Spark, or DDL that Python parses itself.

Nothing here analyzes a frame or parses a schema in the JVM: Spark refuses both in functions of a declarative pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pyrmq_spark.json_texts import quoted, split_at_commas
from pyrmq_spark.spark_errors import InvalidOption, as_spark_error

# One column of a table's DDL: a name, bare or in backticks, and a type. Further words, such as NOT NULL, are ignored.
COLUMN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+))\s*[:\s]\s*(\S.*?)\s*", re.DOTALL)
NO_TYPE: Final = re.compile(r"\s+(?:NOT\s+NULL|COMMENT\s|DEFAULT\s|GENERATED\s).*", re.DOTALL | re.IGNORECASE)
WORDS: Final = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "dec": "decimal"}
WORDS_OF_TIMES: Final = {"timestamp_ltz": "timestamp", "numeric": "decimal", "real": "float"}


class Field(NamedTuple):
    """A column of the table: its name, and its type in Spark's SQL."""

    name: str
    type: str

    @property
    def kind(self) -> str:
        """The first word of the type: `decimal` of `decimal(12, 2)`, `array` of `array<int>`."""
        word = re.split(r"[\s(<]", self.type.strip().lower(), maxsplit=1)[0]
        return (WORDS | WORDS_OF_TIMES).get(word, word)

    @property
    def element(self) -> str:
        """The type of an array's elements in lower case, without blanks. It is empty for any other type."""
        text = re.sub(r"\s", "", self.type.lower())
        return text.removeprefix("array<").removesuffix(">") if self.kind == "array" else ""

    @property
    def scale(self) -> int:
        numbers = re.findall(r"\d+", self.type)
        return int(numbers[1]) if len(numbers) > 1 else 0


Row: TypeAlias = tuple[Field, ...]


def row_and_keys(schema: str | StructType, key: str | Sequence[str]) -> tuple[Row, tuple[str, ...]]:
    keys = (key,) if isinstance(key, str) else tuple(key)
    with as_spark_error("cdc"):
        row = tuple(_fields(schema))
        names = [field.name for field in row]
        if not keys or set(keys) - set(names):
            raise InvalidOption(f"key={key!r} has to name columns of the schema: {', '.join(names)}")
    return row, keys


def ddl(row: Row) -> str:
    return ", ".join(f"{quoted(field.name)} {field.type}" for field in row)


def text_of(row: Row) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in row)


def _fields(schema: str | StructType) -> Iterator[Field]:
    if isinstance(schema, StructType):
        yield from (Field(field.name, _type(field.dataType)) for field in schema)
        return
    for part in split_at_commas(schema):
        column = COLUMN.fullmatch(part)
        if column is None:
            raise InvalidOption(f"schema={schema!r} is no list of names and types: {part.strip()!r}")
        name_in_quotes, bare, words = column.groups()
        yield Field(bare or name_in_quotes.replace("``", "`"), NO_TYPE.sub("", f"{words} ").strip())


def _type(data: DataType) -> str:
    """Returns a type as SQL text. Names in structs are quoted, unlike in `simpleString`."""
    match data:
        case StructType():
            return f"struct<{', '.join(f'{quoted(field.name)}: {_type(field.dataType)}' for field in data)}>"
        case ArrayType():
            return f"array<{_type(data.elementType)}>"
        case MapType():
            return f"map<{_type(data.keyType)}, {_type(data.valueType)}>"
        case _:
            return data.simpleString()
