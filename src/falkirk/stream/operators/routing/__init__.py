"""Operators that decide where rows go next: to the task of a key, to a topic, to another regime, to the errors."""

from __future__ import annotations
