"""No record of a step is larger than its topic accepts.

A sink's rows fail by themselves (`falkirk.stream.operators.sinks.sink.refused`). What comes here is the rest: rows to another
stage, dead letters, and state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from falkirk.checkpoint.ports import Writes
from falkirk.checkpoint.tasks import ClosedStep
from falkirk.errors import UserCodeError
from falkirk.state.codec import decode_key
from falkirk.stream.dataflow.topics import OVERHEAD, all_fit, sizes_of


def check_sizes(step: ClosedStep, limits: Mapping[str, int]) -> None:
    """No record is larger than its topic accepts. Raises UserCodeError: the broker would refuse the whole transaction."""
    for writes in step.writes:
        _check_size(step, writes, limits[writes.topic], "record", lambda key: key)
    for writes in step.owned.task.recovery.logs(step):
        _check_size(step, writes, limits[writes.topic], "key's state", lambda key: decode_key(key)[2])


def _check_size(step: ClosedStep, writes: Writes, limit: int, what: str, in_words: Callable[[bytes], object]) -> None:
    if all_fit(writes.keys, writes.values, limit):
        return
    sizes = sizes_of(writes.keys, writes.values)
    largest = max(sizes)
    key = writes.keys[sizes.index(largest)]
    read = ", ".join(map(str, step.record.division))
    where = [f"task {step.owned.task.id}", f"step {step.record.step}, which reads {read}"]
    raise UserCodeError(
        f"a {what} of {largest - OVERHEAD:,} bytes does not fit into topic {writes.topic!r}: its max.message.bytes, "
        f"{limit:,}, is for key, value and headers together",
        where=", ".join(where if key is None else [*where, f"key {str(in_words(key))[:80]}"]),
        hint=f"make the {what} smaller, or raise the topic's max.message.bytes; then start again",
    )
