"""Docstrings and comments are plain English: checked as far as rules can, and each rule shown a breach."""

import pytest

from tests.support import plain_english
from tests.test_walls import PACKAGES, ROOT, python_sources


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    """Every Python file of the repository."""
    top = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("*.py")}
    return python_sources(*PACKAGES, "tests", "benchmarks", "examples", "docs") | top


def test_docstrings_begin_with_their_verb_or_subject_and_locals_are_nouns(sources: dict[str, str]) -> None:
    assert plain_english.faults(sources) == []


def test_no_word_stands_where_the_field_has_a_better_one(sources: dict[str, str]) -> None:
    assert plain_english.word_faults(sources) == []


def test_a_local_without_a_noun_is_reported() -> None:
    source = "def f(one):\n    found = one.found\n    for made in found:\n        queue = made\n"
    assert plain_english.faults({"m.py": source}) == ["m.py:1: one", "m.py:2: found", "m.py:3: made"]


def test_a_field_of_an_output_is_no_local() -> None:
    assert plain_english.faults({"m.py": "class Check:\n    found: str\n"}) == []


@pytest.mark.parametrize(
    "text",
    [
        "What is left of it.",
        "Whether it is open.",
        "As `call`, but later.",
        "The next id.",
        "`InvalidState` unless it runs.",
        "None at the end.",
    ],
)
def test_a_function_without_its_verb_is_reported(text: str) -> None:
    assert plain_english.faults({"m.py": f'def f():\n    """{text}"""'})


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """Returns the next id."""',
        'class C:\n    """The next id."""',
        'class C:\n    @property\n    def p(self):\n        """The next id."""',
        'def test_it():\n    """The next id."""',
        '@main.command()\ndef send():\n    """Send a message."""',
    ],
)
def test_a_verb_a_value_or_a_test_is_plain(source: str) -> None:
    assert plain_english.faults({"m.py": source}) == []


@pytest.mark.parametrize("word", plain_english.UNPLAIN)
def test_an_unplain_word_is_reported(word: str) -> None:
    assert plain_english.word_faults({"m.py": f"# the caller {word} it"})
    assert plain_english.word_faults({"m.py": f'"""A module {word} it."""'})
    assert plain_english.word_faults({"m.py": f'{word} = "{word}"\n# `{word}`'}) == []
