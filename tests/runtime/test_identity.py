"""A state directory that cannot be used: what to do about it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from falkirk.errors import DiskError
from falkirk.runtime.host import identity
from falkirk.runtime.host.identity import word


def test_space_is_asked_for_only_if_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match="Not a directory") as refused:
        word(tmp_path / "file" / "state")
    assert refused.value.hint == "choose another with --state-dir"

    def full() -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(identity.uuid, "uuid4", full)
    with pytest.raises(DiskError, match="No space left") as refused:
        word(tmp_path)
    assert refused.value.hint == "free some space, or choose another with --state-dir"
