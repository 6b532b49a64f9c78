"""One secured broker for all, and an app on it with a user of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.security.guarded import Guarded
from tests.security.secured import Secured, secured


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that guards what it has."""
    with secured(tmp_path_factory.mktemp("secured")) as one:
        yield one


@pytest.fixture
def app(broker: Secured, topic_prefix: str, tmp_path: Path) -> Iterator[Guarded]:
    """An app whose user may do nothing yet."""
    one = Guarded(broker, topic_prefix, tmp_path)
    yield one
    one.close()
