"""A stand for each test, on the broker that all share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.bad_input.stand import Stand


@pytest.fixture
def stand(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stand]:
    """An app of its own, with nothing there yet."""
    one = Stand(kafka, topic_prefix, tmp_path)
    yield one
    one.close()
