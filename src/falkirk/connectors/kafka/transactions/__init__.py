"""The protocol's log, whose only writer owns the transaction."""

from __future__ import annotations
