from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from falkirk.stream.flow.load import load_flow

FLOW = 'import falkirk as fk\n\nflow = fk.Flow("{}")\n'


def test_an_edited_flow_is_not_taken_for_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "edited.py"
    for name in ("shop", "barn"):  # of one length, and within one second
        file.write_text(FLOW.format(name))
        os.utime(file, (1_700_000_000, 1_700_000_000))
        assert load_flow(f"{file}:flow").name == name
