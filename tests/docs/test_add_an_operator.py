"""The tutorial quotes the code as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUOTED = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs" / "how-to" / "add-an-operator.md").read_text(), re.DOTALL | re.MULTILINE
)
CODE = [
    (ROOT / path).read_text()
    for path in (
        "src/falkirk/stream/operators/groups/unique.py",
        "src/falkirk/stream/flow/streams.py",
        "tests/stream/operators/test_conformance.py",
    )
]


@pytest.mark.parametrize("quoted", QUOTED, ids=[quoted.split("\n")[0].strip()[:40] for quoted in QUOTED])
def test_what_the_tutorial_shows_is_the_code(quoted: str) -> None:
    assert any(quoted in text for text in CODE)


def test_the_tutorial_shows_all_of_the_operator() -> None:
    assert len(QUOTED) == 7
