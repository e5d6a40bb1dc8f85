"""Kinds of columns: their types in a database and in Spark, values to draw, and one form in which both sides compare.

A value of the database goes through the SQL of `truth`, Spark's through that of `view`; both are texts then, which are
equal, or are by `same` (doubles, of which each side writes another text).
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from string import ascii_letters, digits
from typing import Final

Draw = Callable[[Random], str]

LONG_LENGTH: Final = 3000

# In Spark's zone UTC.
LOCAL_MICROS: Final = "cast(unix_micros(cast({} as timestamp)) as string)"
EPOCH_MICROS: Final = "cast(extract(epoch from {}) * 1000000 as bigint)::text"
# Names and texts in which a careless step shows: quotes, a backslash, a line break, a letter outside of the BMP.
TEXTS: Final = (
    "",
    "a",
    "O'Neill",
    'say "so"',
    "back\\slash",
    "two\nlines",
    "Weiß",
    "日本",
    "a 𝄞 clef",
    "null",
    "{}",
    "0",
)
INSTANTS: Final = (
    "1970-01-01 00:00:00",
    "1999-12-31 23:59:59.999999",
    "2024-02-29 12:34:56.123456",
    "2038-01-19 03:14:08",
)
UUIDS: Final = ("b68a35a7-17ad-4000-8000-ae46edb4545b", "00000000-0000-4000-8000-000000000001")
DAYS: Final = ("1969-12-31", "1970-01-01", "2000-02-29", "2024-12-31", "9999-12-31")
TIMES: Final = ("00:00:00", "00:00:01.5", "12:34:56.123456", "23:59:59.999999")


def as_text(value: object) -> str:
    return str(value)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of column; `draw` returns an SQL literal."""

    sql: str
    spark: str
    draw: Draw
    truth: str = "{}::text"
    view: str = "cast({} as string)"
    same: Callable[[str], object] = as_text


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def among(*values: object) -> Draw:
    """Returns a draw of one of these values; texts become literals."""
    texts = [quoted(value) if isinstance(value, str) else str(value) for value in values]
    return lambda random: random.choice(texts)


def integers(bits: int, *, unsigned: bool = False) -> Draw:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return lambda random: str(random.choice((low, high, 0, random.randint(low, high), random.randint(0, 99))))


def decimals(precision: int, scale: int) -> Draw:
    def draw(random: Random) -> str:
        width = random.choice((1, precision - scale, precision))
        number = random.randint(-(10**width) + 1, 10**width - 1)
        sign, text = "-" if number < 0 else "", str(abs(number)).rjust(scale + 1, "0")
        return f"{sign}{text[:-scale]}.{text[-scale:]}"

    return draw


def doubles(random: Random) -> str:
    return repr(random.choice((0.0, 0.1, -1.5, 1e300, 5e-324, 123456789.123, random.random(), 2.0**53 + 2)))


def long_text(random: Random) -> str:
    """Returns letters that do not compress, and so many that PostgreSQL keeps them outside of the row."""
    return quoted("".join(random.choices(ascii_letters + digits, k=LONG_LENGTH)))


def hex_bytes(form: str, lengths: tuple[int, ...]) -> Draw:
    return lambda random: form.format(random.randbytes(random.choice(lengths)).hex())


def arrays(cast: str, elements: tuple[str, ...]) -> Draw:
    """Returns a draw of arrays, in which an element is null beside others: nulls alone are refused."""

    def draw(random: Random) -> str:
        drawn = random.choices(elements, k=random.randint(0, 3))
        return f"array[{', '.join([*drawn, elements[0]] if drawn else [])}]::{cast}"

    return draw


POSTGRESQL: Final = {
    "small": Kind("smallint", "smallint", integers(16)),
    "number": Kind("int", "int", integers(32)),
    "big": Kind("bigint", "bigint", integers(64)),
    "amount": Kind("numeric(20,4)", "decimal(20,4)", decimals(20, 4), same=Decimal),
    "ratio": Kind("double precision", "double", doubles, same=float),
    "flag": Kind("boolean", "boolean", among(True, False)),
    "words": Kind("text", "string", among(*TEXTS)),
    "bytes": Kind("bytea", "binary", hex_bytes(r"'\x{}'::bytea", (0, 1, 3, 4)), "encode({}, 'hex')", "lower(hex({}))"),
    "day": Kind("date", "date", among(*DAYS)),
    "clock": Kind("time", "bigint", among(*TIMES), EPOCH_MICROS),
    "moment": Kind("timestamptz", "timestamp", among(*INSTANTS), EPOCH_MICROS, "cast(unix_micros({}) as string)"),
    "written": Kind(
        "timestamp",
        "timestamp_ntz",
        among(*INSTANTS),
        EPOCH_MICROS,
        "cast(unix_micros(cast({} as timestamp)) as string)",
    ),
    "mood": Kind("mood", "string", among("sad", "ok", "very happy")),
    "uuid": Kind(
        "uuid", "string", among("b68a35a7-17ad-35b3-af2a-ae46edb4545b", "00000000-0000-0000-0000-000000000001")
    ),
    "jsonb": Kind("jsonb", "string", among('{"a": [1, null, "é"]}', "null", "[]", '"text"', "1.50")),
    "numbers": Kind(
        "int[]",
        "array<int>",
        arrays("int[]", ("1", "-2", "null", "2147483647")),
        "array_to_json({})::text",
        "to_json({})",
    ),
    "labels": Kind(
        "text[]",
        "array<string>",
        arrays("text[]", ("'a'", "''", "null", "'b,\"c'")),
        "array_to_json({})::text",
        "to_json({})",
    ),
    "bit": Kind("bit(1)", "boolean", among("0", "1"), "(({})::int = 1)::text"),
    "long": Kind("text", "string", long_text),
    "long_bytes": Kind(
        "bytea", "binary", hex_bytes(r"'\x{}'::bytea", (LONG_LENGTH,)), "encode({}, 'hex')", "lower(hex({}))"
    ),
}

CHARS: Final = "cast({} as char)"
MICROS: Final = "cast(timestampdiff(microsecond, '1970-01-01', {}) as char)"
MARIADB: Final = {
    "tiny": Kind("tinyint", "smallint", integers(8), CHARS),
    "small_unsigned": Kind("smallint unsigned", "int", integers(16, unsigned=True), CHARS),
    "number": Kind("int", "int", integers(32), CHARS),
    "big": Kind("bigint", "bigint", integers(64), CHARS),
    "big_unsigned": Kind("bigint unsigned", "decimal(20,0)", integers(64, unsigned=True), CHARS),
    "amount": Kind("decimal(30,10)", "decimal(30,10)", decimals(30, 10), CHARS, same=Decimal),
    "ratio": Kind("double", "double", doubles, CHARS, same=float),
    "words": Kind("varchar(100)", "string", among(*(text.replace("\\", "\\\\") for text in TEXTS)), CHARS),
    "latin": Kind("varchar(50) character set latin1", "string", among("", "Weiß", "a'b"), CHARS),
    "size": Kind("enum('small','medium','very large')", "string", among("small", "medium", "very large"), CHARS),
    "choice": Kind("set('a','b','c')", "string", among("", "a", "a,c", "a,b,c"), CHARS),
    "day": Kind("date", "date", among(*DAYS), CHARS),
    "written": Kind("datetime(6)", "timestamp_ntz", among(*INSTANTS), MICROS, LOCAL_MICROS),
    "moment": Kind(
        "timestamp(6) null",
        "timestamp",
        among("1999-12-31 23:59:59.999999", "2024-02-29 12:34:56.123456"),
        "cast(cast(unix_timestamp({}) * 1000000 as integer) as char)",
        "cast(unix_micros({}) as string)",
    ),
    "year": Kind("year", "int", among(1901, 2155, 2024), CHARS),
    "bytes": Kind("varbinary(20)", "binary", hex_bytes("x'{}'", (0, 1, 3, 4)), "lower(hex({}))", "lower(hex({}))"),
    "fixed": Kind("binary(4)", "binary", hex_bytes("x'{}'", (4, 2)), "lower(hex({}))", "lower(hex({}))"),
    "json": Kind("json", "string", among('{"a": [1, null]}', "null", "[]"), CHARS),
    "flag": Kind("boolean", "smallint", among(0, 1), CHARS),
    "bit": Kind("bit(1)", "boolean", among(0, 1), "cast({} + 0 as char)", "cast(cast({} as int) as string)"),
    "long": Kind("mediumtext", "string", long_text, CHARS),
}
# Columns that PostgreSQL leaves out of an update, where the replica identity is the default.
LONG: Final = ("long", "long_bytes")
