"""Places of tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.s3 import BUCKET, S3


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    server = S3()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    yield server
    server.close()


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "table")
    request.getfixturevalue("s3")
    return f"s3://{BUCKET}/some/table"
