"""How long tests wait."""

from __future__ import annotations

PATIENCE_S = 240.0
"""For what must come. It only ends a test that has failed: a machine that is shared may be ten times as slow as it was."""
