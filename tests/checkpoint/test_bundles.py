"""Records that share one with those of other tasks."""

from __future__ import annotations

import msgspec
import pytest

from falkirk.checkpoint import bundles
from falkirk.checkpoint.bundles import BUNDLE, bundled, parts_made, parts_of
from falkirk.checkpoint.ports import Output, Writes
from falkirk.checkpoint.steps import HEADER, Maker, add_headers
from falkirk.stream.dataflow.provenance import provenances


def edge(task: str, step: int, *records: tuple[int, bytes, int]) -> Writes:
    """What a task's step writes to an edge: partition, value, timestamp."""
    partitions, values, times = zip(*records, strict=True) if records else ((), (), ())
    writes = Writes("edge", partitions, [None] * len(records), values, times, bundles=True)
    add_headers([Output("edge", writes)], f"{task} {step}")
    return writes


def read(sent: Writes) -> list[tuple[int, list[tuple[Maker | None, bytes | None]], int]]:
    """Partition, parts, timestamp of each record."""
    assert sent.headers is not None
    assert sent.timestamps is not None
    columns = zip(sent.partitions, sent.headers, sent.values, sent.timestamps, strict=True)
    return [(p, parts_made(headers, value), time) for p, headers, value, time in columns]


def test_tasks_share_one_record_for_each_partition_and_keep_their_order() -> None:
    own = Writes("sink", [0], [b"k"], [b"v"])
    first, second = edge("a/0", 7, (0, b"a0", 5), (1, b"a1", 9), (1, b"a1+", 8)), edge("a/1", 3, (1, b"b1", 4))
    kept, sent = bundled([first, own, second])
    assert kept is own
    assert read(sent) == [
        (0, [(Maker("a/0", 7, 0), b"a0")], 5),
        (1, [(Maker("a/0", 7, 0), b"a1"), (Maker("a/0", 7, 1), b"a1+"), (Maker("a/1", 3, 0), b"b1")], 9),
    ]
    assert sent.headers is not None
    assert [[name for name, _ in headers] for headers in sent.headers] == [[HEADER], [BUNDLE]]
    assert [[p.task for p in provenances(headers)] for headers in sent.headers] == [["a/0"], ["a/0", "a/0", "a/1"]]


def test_a_record_that_goes_alone_is_as_it_would_be_without_bundles() -> None:
    (sent,) = bundled([edge("a/0", 7, (2, b"x", 5))])
    assert (sent.values, sent.headers) == ([b"x"], [[(HEADER, b"a/0 7 0")]])


def test_other_topics_are_sent_as_they_are() -> None:
    writes = [Writes("sink", [0, 0], [b"k", b"l"], [b"v", b"w"]), Writes("steps", [1], [b"t"], [b"{}"], tracked=True)]
    assert bundled(writes) == writes


def test_a_task_without_rows_adds_nothing() -> None:
    (sent,) = bundled([edge("a/0", 1), edge("a/1", 1, (3, b"x", 0))])
    assert list(sent.partitions) == [3]


def test_a_bundle_stays_below_its_limit_unless_one_part_is_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "LIMIT", 10)
    sizes = [4, 4, 4, 30, 2, 2]
    (sent,) = bundled([edge(f"a/{i}", 0, (0, b"x" * n, i)) for i, n in enumerate(sizes)])
    assert [[len(value or b"") for _, value in parts] for _, parts, _ in read(sent)] == [[4, 4], [4], [30], [2, 2]]
    assert sent.timestamps == [1, 2, 3, 5]


@pytest.mark.parametrize("value", [b"\x03", b"\x03garbage", b"\x03\xc4\x05ab"])
def test_a_damaged_bundle_is_refused(value: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        parts_of(value)


def test_a_bundle_whose_header_names_other_parts_is_refused() -> None:
    (sent,) = bundled([edge("a/0", 1, (0, b"x", 0)), edge("a/1", 1, (0, b"y", 0))])
    with pytest.raises(msgspec.DecodeError, match="2 parts names 1 step"):
        parts_made([(BUNDLE, b"a/0 1 0")], sent.values[0])


def test_a_value_that_begins_like_a_bundle_is_the_users_own_where_the_header_says_so() -> None:
    assert parts_made([(HEADER, b"a/0 1 0")], b"\x03mine") == [(Maker("a/0", 1, 0), b"\x03mine")]
    assert parts_made(None, b"\x03mine") == [(None, b"\x03mine")]
