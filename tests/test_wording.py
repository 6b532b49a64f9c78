"""Numbers before nouns: "1 row", "2 rows". One function words them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import falkirk

SOURCES = Path(falkirk.__file__).parent
PLURAL = re.compile(
    r" (?:[a-z]+ )?(?:rows|records|tasks|workers|partitions|letters|objects|versions|columns|results|steps|epochs|topics|"
    r"flows|stages|messages|streams)\b(?!/s)"
)


def counts(tree: ast.AST) -> Iterator[str]:
    """Numbers in f-strings with a plural after them, whatever the number is."""
    for node in ast.walk(tree):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for number, after in pairwise(parts):
            if not isinstance(number, ast.FormattedValue) or not isinstance(after, ast.Constant):
                continue
            formatted = number.format_spec is not None and ast.unparse(number.format_spec) in ("f','", "f',.0f'")
            length = isinstance(number.value, ast.Call) and ast.unparse(number.value.func) == "len"
            if (formatted or length) and (found := PLURAL.match(str(after.value))):
                yield f"{ast.unparse(number)}{found[0]}"


def test_no_text_counts_without_the_function_that_knows_the_singular() -> None:
    found = [
        f"{path.relative_to(SOURCES)}: {text}"
        for path in sorted(SOURCES.rglob("*.py"))
        if "simulator" not in path.parts
        for text in counts(ast.parse(path.read_text()))
    ]
    assert found == [], "use falkirk.wording.counted"


def test_the_search_finds_what_it_is_for() -> None:
    wrong = 'f"{n:,} rows", f"{len(x)} dead letters of {y}", f"{n:,.0f} records/s", f"app {name} tasks"'
    assert len(list(counts(ast.parse(wrong)))) == 2
