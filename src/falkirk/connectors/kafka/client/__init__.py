"""Clients of librdkafka: their settings, how they are made, and what their errors mean."""

from __future__ import annotations
