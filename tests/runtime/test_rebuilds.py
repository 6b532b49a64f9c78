"""What an operator is rebuilt from is all there, or that is said before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.checkpoint.ids import InputPartition, Millis, Nonce, Offset, OwnerId, Step, TopicPartition
from falkirk.checkpoint.reading import Records
from falkirk.checkpoint.records import Move, Named, Released, StepRecord
from falkirk.errors import SourceError, StateError
from falkirk.runtime.layout.layout import StageRecord, Start, TopicRecord
from falkirk.runtime.rebuild.beginnings import beginnings
from falkirk.runtime.rebuild.checks import check_ended
from falkirk.stream.dataflow.topics import Input

BIDS = InputPartition("", "bids", "id", 0)


def topics(earliest: int, policy: str = "delete", since: int = 0) -> Any:
    def offsets(places: Iterable[TopicPartition], at: str | int) -> dict[TopicPartition, Offset]:
        return dict.fromkeys(places, Offset(earliest if at == "earliest" else since))

    return SimpleNamespace(offsets=offsets, configs=lambda names: {name: {"cleanup.policy": policy} for name in names})


def begin(i: Input, cluster: Any, first: tuple[int, ...] = (), starts: Mapping[str, Start] | None = None) -> Offset:
    known = {"bids": TopicRecord("id", 1, "source", first)}
    return beginnings({BIDS: i}, cluster, known, starts or {})[BIDS]


SOURCE = Input("bids", "bids", "source")


def test_a_source_is_read_from_where_the_app_began() -> None:
    assert begin(SOURCE, topics(0)) == 0
    assert begin(SOURCE, topics(7), first=(7,)) == 7
    assert begin(Input("bids", "bids", "source", start={0: 20}), topics(12)) == 20
    assert begin(Input("bids", "bids", "source", start=1_700_000_000_000), topics(12, since=30)) == 30
    assert begin(SOURCE, topics(12), starts={"bids": Start("id", (15,))}) == 15
    assert begin(Input("bids", "bids", "edge"), topics(0)) == 0
    assert begin(Input("bids", "bids", "source", table=True), topics(12, policy="compact")) == 12


@pytest.mark.parametrize(
    ("i", "cluster", "first", "words"),
    [
        (SOURCE, topics(8), (7,), "the app began at offset 7, and topic 'bids' now begins at 8"),
        (SOURCE, topics(1), (), "the app began at offset 0"),
        (SOURCE, topics(0, policy="compact,delete"), (0,), "is compacted"),
        (Input("bids", "bids", "source", start="latest"), topics(0), (0,), "no record of where the app began"),
        (Input("bids", "bids", "source", start={0: 20}), topics(21), (), "began at offset 20"),
        (Input("bids", "bids", "source", start=1_700_000_000_000), topics(12, since=12), (0,), "began at offset 0"),
        (Input("bids", "bids", "edge"), topics(5), (), "began at offset 0"),
    ],
)
def test_what_is_not_whole_any_more_is_refused(i: Input, cluster: Any, first: tuple[int, ...], words: str) -> None:
    with pytest.raises(SourceError, match=words) as raised:
        begin(i, cluster, first)
    assert "partition 0" in (raised.value.where or "")


def stage(regime: str, moving: int) -> StageRecord:
    return StageRecord("stats", 1, regime, True, "f", "1: stats v1: n", ("bids",), ("out",), moving=moving)


def last(layout: int, move: Move | None = None, *, released: bool = True) -> Records:
    step = StepRecord("stats/0", Step(7), Nonce("n"), OwnerId("w"), Millis(0), (), (), "", layout=layout, move=move)
    return [(Offset(7), step), *([(Offset(8), Released(Nonce("n")))] if released else [])]


def test_nothing_is_rebuilt_of_what_is_being_moved_or_has_not_ended() -> None:
    lazy, eager = stage("lazy", 0), stage("eager", 3)
    check_ended(eager, eager, [last(3), last(4, Move(left=False), released=False), []], running=False)
    for under_way in (last(2), last(3, Move(left=True))):
        with pytest.raises(StateError, match="layout 3 is to migrate or rebuild in stage 'stats' is not done yet"):
            check_ended(eager, eager, [last(3), under_way], running=False)
    check_ended(lazy, lazy, [last(1), []], running=False)
    with pytest.raises(StateError, match="is lazy and still runs"):
        check_ended(lazy, lazy, [last(1), last(1, released=False)], running=False)


def test_a_name_behind_the_release_counts_while_a_worker_runs() -> None:
    lazy = stage("lazy", 0)
    named = [*last(1), (Offset(9), Named(Nonce("m"), OwnerId("other"), "host"))]
    check_ended(lazy, lazy, [named], running=False)
    with pytest.raises(StateError, match="is lazy and still runs"):
        check_ended(lazy, lazy, [named], running=True)
