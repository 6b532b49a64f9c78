"""What a worker's tasks read: inputs, shared tables, and records again."""

from __future__ import annotations
