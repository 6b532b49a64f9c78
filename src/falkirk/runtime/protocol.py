"""What supervisor and worker processes say to each other: lines of JSON on the worker's standard input and output."""

from __future__ import annotations

import msgspec


class Work(msgspec.Struct, frozen=True, tag="work"):
    """To a spare: be worker `slot`."""

    slot: int


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """From a spare: imported, planned and connected."""


class TaskReport(msgspec.Struct, frozen=True):
    """One task, as its worker sees it."""

    task: str
    phase: str
    step: int = -1
    rows: int = 0
    """Taken in since the last report."""
    pending: int = 0
    version: int = 0


class Report(msgspec.Struct, frozen=True, tag="report"):
    """From a worker, once a second."""

    slot: int
    tasks: list[TaskReport]
    step_ms: float = 0.0
    commit_ms: float = 0.0
    commits: int = 0


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """From a worker that ends: what is wrong, in words for people."""

    message: str
    exit_code: int


FromWorker = Ready | Report | Failed
encode = msgspec.json.Encoder().encode
decode_from_worker = msgspec.json.Decoder(Ready | Report | Failed).decode
decode_to_worker = msgspec.json.Decoder(Work).decode
