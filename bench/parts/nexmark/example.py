"""The modules of examples/nexmark. They import each other as scripts of one folder do, so that folder is put on the path."""

from __future__ import annotations

import sys

from harness.processes import ROOT

FOLDER = ROOT / "examples" / "nexmark"
sys.path.insert(0, str(FOLDER))

import answers  # noqa: E402
import events  # noqa: E402
import fill  # noqa: E402
import queries  # noqa: E402
import texts  # noqa: E402

__all__ = ["FOLDER", "answers", "events", "fill", "queries", "texts"]
