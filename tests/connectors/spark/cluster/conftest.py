"""A standalone cluster for the tests of one file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.connectors.spark.cluster.standalone import Standalone


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master and two workers."""
    with Standalone(tmp_path_factory.mktemp("spark")) as started:
        yield started
