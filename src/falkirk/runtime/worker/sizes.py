"""No record of a step is larger than its topic accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from falkirk.checkpoint.ports import Writes
from falkirk.checkpoint.tasks import ClosedStep
from falkirk.errors import UserCodeError
from falkirk.state.codec import decode_key

OVERHEAD = 512
"""Bytes that a record's headers and its batch add to key and value, at most."""


def check_sizes(step: ClosedStep, limits: Mapping[str, int]) -> None:
    """No record is larger than its topic accepts. Raises UserCodeError: the broker would refuse the whole transaction."""
    for writes in step.writes:
        _check_size(step, writes, limits[writes.topic], "record", lambda key: key)
    for writes in step.owned.task.recovery.logs(step):
        _check_size(step, writes, limits[writes.topic], "key's state", lambda key: decode_key(key)[2])


def _check_size(step: ClosedStep, writes: Writes, limit: int, what: str, in_words: Callable[[bytes], object]) -> None:
    sizes = [len(v or b"") + len(k or b"") for k, v in zip(writes.keys, writes.values, strict=True)]
    if not sizes or (largest := max(sizes)) <= limit - OVERHEAD:
        return
    key = writes.keys[sizes.index(largest)]
    read = ", ".join(map(str, step.record.division))
    where = [f"task {step.owned.task.id}", f"step {step.record.step}, which reads {read}"]
    raise UserCodeError(
        f"a {what} of {largest:,} bytes does not fit into topic {writes.topic!r}: its max.message.bytes, {limit:,}, is "
        "for key, value and headers together",
        where=", ".join(where if key is None else [*where, f"key {str(in_words(key))[:80]}"]),
        hint=f"make the {what} smaller, or raise the topic's max.message.bytes; then start again",
    )
