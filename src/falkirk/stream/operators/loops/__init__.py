"""A part of a flow that runs until its result stays the same. The rule is in `falkirk.stream.operators.loops.iterate`."""

from __future__ import annotations
