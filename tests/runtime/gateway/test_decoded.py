"""Records that several subscribers read are decoded once, and not kept for long."""

from __future__ import annotations

import json
from collections.abc import Sequence

from falkirk.runtime.gateway.decoded import Decoded
from falkirk.stream.access.endpoints import Row, View
from falkirk.stream.dataflow.records import Message
from falkirk.testing.memory import Record


class Counting:
    """A view that counts what it decodes."""

    def __init__(self) -> None:
        self._view, self.decoded = View("bids", "topic", "bids"), list[int]()

    def rows(self, messages: Sequence[Message]) -> list[Row]:
        self.decoded += [message.offset() for message in messages]
        return self._view.rows(messages)


def record(offset: int, partition: int = 0) -> Record:
    return Record(partition, offset, b"k", b"v%d" % offset)


def values(found: list[bytes]) -> list[str]:
    return [json.loads(data)["value"]["value"] for data in found]


def test_each_record_is_decoded_once_and_given_in_the_order_that_is_asked_for() -> None:
    view = Counting()
    decoded = Decoded(view)
    assert values(decoded.data("topic", [record(1), record(2)])) == ["v1", "v2"]
    assert values(decoded.data("topic", [record(3), record(2), record(1)])) == ["v3", "v2", "v1"]
    assert view.decoded == [1, 2, 3]


def test_another_partition_and_a_topic_that_was_made_again_have_other_records() -> None:
    view = Counting()
    decoded = Decoded(view)
    decoded.data("topic", [record(1)])
    decoded.data("topic", [record(1, partition=1)])
    decoded.data("again", [record(1)])
    assert view.decoded == [1, 1, 1]


def test_what_is_kept_is_bounded_and_a_larger_batch_is_given_all_the_same() -> None:
    view = Counting()
    decoded = Decoded(view, kept=500)
    many = [record(n) for n in range(100)]
    assert values(decoded.data("topic", many)) == [f"v{n}" for n in range(100)]
    decoded.data("topic", many)
    assert 150 < len(view.decoded) <= 200
