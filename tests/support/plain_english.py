"""The rules of plain English as plain functions over source texts: how docstrings begin, and words to avoid.

Each function takes `{path from the project's root: source text}` and returns one line per fault, so that a test can
show on a wrong sample that it is able to fail.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping

Sources = Mapping[str, str]

# A sentence that begins so has no subject, or hides it in a clause.
HIDDEN_SUBJECTS = re.compile(
    r"(What|Whatever|Whether|Where|Who|Whoever|Which|How|When|Those|That|As|The same|None|Nobody|Nothing|Of|For)\b"
)
# "Returns", "Raises", "Does": a function's docstring begins with a verb in the third person.
VERB = re.compile(r"[A-Z][a-z]+s\b|(`[^`]+` )?(Like|With|Without|Has|Is)\b")
UNPLAIN = {
    "who": "caller, connection, task, broker, user",
    "whoever": "the caller, the broker, ...",
    "whom": "the caller, the broker, ...",
    "nobody": "no caller, no task, ...",
    "somebody": "a caller, a task, ...",
    "told": "returned, reported, logged, raised, passed",
    "tells": "returns, reports, says",
    "younger": "later",
    "road": "path",
    "roads": "paths",
}
WORDS = re.compile(rf"\b({'|'.join(UNPLAIN)})\b", re.IGNORECASE)

# Participles and pronouns that stand for a noun, as names of locals and parameters.
NAMELESS = frozenset({"made", "found", "known", "some", "one", "taken"})

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def faults(sources: Sources) -> list[str]:
    """Returns the docstrings without their subject or verb, and the locals whose name says nothing about the value.

    Both by one reading of each file, since parsing takes most of the time.
    """
    trees = ((path, ast.parse(source)) for path, source in sources.items())
    return sorted(fault for path, tree in trees for fault in _faults(path, list(ast.walk(tree))))


def _faults(path: str, nodes: list[ast.AST]) -> Iterator[str]:
    bodies = (node.body for node in nodes if isinstance(node, ast.ClassDef))
    fields = {field.target for body in bodies for field in body if isinstance(field, ast.AnnAssign)}  # of an output
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            if node.id in NAMELESS and node not in fields:
                yield f"{path}:{node.lineno}: {node.id}"
        elif isinstance(node, ast.arg):
            if node.arg in NAMELESS:
                yield f"{path}:{node.lineno}: {node.arg}"
        elif isinstance(node, Documented) and (text := ast.get_docstring(node)):
            line = node.body[0].lineno
            if match := HIDDEN_SUBJECTS.match(text):
                yield f"{path}:{line}: a docstring begins with {match[0]!r}"
            elif _is_function(node) and not VERB.match(text):
                yield f"{path}:{line}: a function's docstring begins with {text.split()[0]!r}, not with a verb"


def _is_function(node: Documented) -> bool:
    """Returns False for tests, for values (properties, fixtures), and for commands, whose help is an imperative."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    if node.name.startswith("test_"):
        return False
    decorators = {ast.unparse(decorator).partition("(")[0].rpartition(".")[2] for decorator in node.decorator_list}
    return not decorators & {"property", "cached_property", "fixture", "command", "group"}


def word_faults(sources: Sources) -> list[str]:
    """Returns the words in docstrings and comments for which the field has a better one."""
    return sorted(
        f"{path}:{line}: {match[0]!r}: say {UNPLAIN[match[0].lower()]}"
        for path, source in sources.items()
        if WORDS.search(source)  # most files need no parser
        for line, text in _prose(source)
        for match in WORDS.finditer(re.sub(r"`[^`]*`|\"[^\"]*\"", "", text))
    )


def _prose(source: str) -> Iterator[tuple[int, str]]:
    """Yields each comment and each docstring with its line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text
