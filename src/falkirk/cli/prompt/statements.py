"""Lines become statements: each ends with a semicolon that is not in quotes or in a comment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

PROMPT, MORE = "sql> ", "...> "

_TOKEN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*(?:\n|$)|/\*.*?\*/|;|'|"|/\*|[^'";/-]+|.""", re.DOTALL)
_SHORT = re.compile(r"\s*(help|\?|quit|exit|\\q|show\s+\w+|desc(?:ribe)?\s+\S+|stop\s+\S+)\s*;?\s*", re.IGNORECASE)
"""Commands that need no semicolon."""


def end_of(text: str) -> int:
    """The place of the first semicolon that ends a statement; -1 if none does.

    >>> end_of("select ';' -- ;"), end_of("select 1; select 2"), end_of("select 'a;")
    (-1, 8, -1)
    """
    for token in _TOKEN.finditer(text):
        if token[0] == ";":
            return token.start()
        if token[0] in ("'", '"', "/*"):  # not closed yet
            return -1
    return -1


def is_empty(text: str) -> bool:
    """Whether there are only blanks and comments."""
    return all(t[0].startswith(("--", "/*")) or not t[0].strip() for t in _TOKEN.finditer(text))


def statements(read: Callable[[str], str | None]) -> Iterator[str]:
    """Statements without their semicolons. `read(prompt)` gives the next line, or None at the end.

    >>> lines = iter(["select 1", "from t; show tables;", "help", "select 2", None])
    >>> list(statements(lambda prompt: next(lines)))
    ['select 1\\nfrom t', ' show tables', 'help', 'select 2']
    """
    held = ""
    while True:
        try:
            line = read(MORE if held else PROMPT)
        except KeyboardInterrupt:  # drops what was typed
            held = ""
            continue
        if line is None:
            if not is_empty(held):
                yield held
            return
        if not held and (short := _SHORT.fullmatch(line)) is not None:
            yield short[1]
            continue
        held += ("\n" if held else "") + line
        while (end := end_of(held)) >= 0:
            if not is_empty(held[:end]):
                yield held[:end]
            held = held[end + 1 :]
        held = "" if is_empty(held) else held
