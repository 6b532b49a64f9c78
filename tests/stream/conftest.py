"""Many small examples over a machine that may be busy: no deadlines."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("stream", deadline=None, max_examples=7)
settings.load_profile("stream")
