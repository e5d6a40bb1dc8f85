"""`Text`: an English sentence that keeps its pattern and values, so that the project's web page can translate it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Text(str):
    """An English sentence, made from a pattern with `{names}` and their values, some of which may be sentences too.

    It compares and prints as any `str`.
    """

    __slots__ = ("pattern", "values")
    pattern: str
    values: Mapping[str, object]

    def __new__(cls, pattern: str, /, **values: object) -> Text:
        """Returns the sentence. A pattern without values may contain braces."""
        text = super().__new__(cls, pattern.format(**values) if values else pattern)
        text.pattern, text.values = pattern, values
        return text

    def __str__(self) -> str:
        return self  # so that `str(error)` returns this object, with its pattern and values


def joined(texts: Sequence[str], *, by_commas: bool = False) -> str:
    """Returns sentences joined with semicolons, or the items of a list with commas."""
    first, *others = texts
    for text in others:
        values = {"first": first, "then": text}
        first = Text("{first}, {then}", **values) if by_commas else Text("{first}; {then}", **values)
    return first


def text_of(error: Exception) -> str:
    """Returns an error's text with its notes (`__notes__`)."""
    return joined([str(error), *getattr(error, "__notes__", ())])
