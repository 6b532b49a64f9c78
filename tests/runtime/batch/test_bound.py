"""Batch parts bound to topics, without a cluster: what an epoch reads, and from where."""

from __future__ import annotations

from collections.abc import Collection

import pytest

import falkirk as fk
from falkirk.checkpoint.epochs import KEPT, Abandoned, Completed, Epochs, Opened, OutputEnds
from falkirk.checkpoint.ids import Epoch, InputPartition, Millis, Offset, TopicPartition
from falkirk.checkpoint.records import Range
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.errors import ConfigError
from falkirk.runtime.app.batch_part import PIECE, BoundBatch, bind
from falkirk.runtime.messages.deleted import check_history


def bound(flow: fk.Flow, partitions: int = 1) -> BoundBatch:
    (stage,) = flow.plan().batches
    topics = {i.topic for i in stage.inputs} | {o.topic for o in stage.outputs} | {"epochs"}
    (batch,) = bind([stage], {stage.id: "epochs"}, {t: TopicInfo(t, f"id of {t}", partitions) for t in topics})
    return batch


def read(topic: str, start: int, end: int) -> Range:
    return Range(InputPartition.at(TopicPartition(topic, 0), f"id of {topic}"), Offset(start), Offset(end))


def test_each_source_of_a_topic_reads_all_of_it() -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    bids, again = (flow.source(name, topic="bids", value=fk.Json({"n": int})) for name in ("bids", "again"))
    bids.concat(again).sink("out", value=fk.Json())
    pieces = bound(flow).pieces(Opened(Epoch(0), Millis(0), (read("bids", 5, PIECE + 7),), (), "f"))
    assert [piece[:1] + piece[3:] for piece in pieces] == [  # type: ignore[index]
        (0, 5, PIECE + 5),
        (1, 5, PIECE + 5),
        (0, PIECE + 5, PIECE + 7),
        (1, PIECE + 5, PIECE + 7),
    ]


def test_an_epoch_replaces_what_any_epoch_before_has_left_in_its_sinks() -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    bids = flow.source("bids", key="n", value=fk.Json({"n": int}))
    for sink in ("old", "new"):
        bids.sink(sink, key="n", value=fk.Json())
    batch, epochs = bound(flow), Epochs()

    def opened(epoch: int, **ends: int) -> list[tuple[str, int, int]]:
        """The ranges that it replaces, by topic."""
        outputs = tuple(OutputEnds(topic, f"id of {topic}", (Offset(end),)) for topic, end in ends.items())
        epochs.admit(Offset(2 * epoch), Opened(Epoch(epoch), Millis(0), (), outputs, "f"))
        return [(place.topic, start, end) for _, place, start, end in batch.replaced(epochs)]

    def ended(epoch: int, *, whole: bool) -> None:
        end = Completed(Epoch(epoch), Millis(0), (), 0) if whole else Abandoned(Epoch(epoch), Millis(0), "no")
        epochs.admit(Offset(2 * epoch + 1), end)

    assert not opened(0, old=0, new=50)
    ended(0, whole=False)
    assert opened(1, old=4, new=60) == [("old", 0, 4), ("new", 50, 60)], "of an epoch that was abandoned"
    ended(1, whole=True)
    assert opened(2, old=8) == [("old", 4, 8)]
    ended(2, whole=True)
    assert opened(3, old=9, new=70) == [("old", 8, 9), ("new", 60, 70)], "of an epoch before the last one"
    ended(3, whole=False)
    assert opened(4, old=10, new=75) == [("old", 8, 10), ("new", 60, 75)]


def added(count: int, known: int) -> Epochs:
    """So many epochs of only what is new: 10 records each, and one more of the output. Not all are `known` any more."""
    epochs = Epochs()
    for epoch in range(count - known, count):
        outputs = (OutputEnds("out", "id of out", (Offset(epoch),)),)
        reads = (read("bids", 10 * epoch, 10 * epoch + 10),)
        epochs.admit(Offset(2 * epoch), Opened(Epoch(epoch), Millis(0), reads, outputs, "f"))
        epochs.admit(Offset(2 * epoch + 1), Completed(Epoch(epoch), Millis(0), (), 0))
    return epochs


class Offsets:
    """`Topics`, of partitions that begin and end here."""

    def __init__(self, earliest: int, latest: int) -> None:
        self.known = {"earliest": Offset(earliest), "latest": Offset(latest)}

    def offsets(self, places: Collection[TopicPartition], at: str) -> dict[TopicPartition, Offset]:
        return dict.fromkeys(places, self.known[at])


@pytest.mark.parametrize("count", [3, KEPT, KEPT + 7])
@pytest.mark.parametrize(("start", "begins"), [("earliest", 2), ({0: 5}, 5)])
def test_the_whole_history_after_epochs_of_what_was_new_is_all_of_it(
    count: int, start: str | dict[int, int], begins: int
) -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    flow.source("bids", key="n", value=fk.Json({"n": int}), start=start).sink("out", key="n", value=fk.Json())
    batch, topics = bound(flow), Offsets(2, 10 * count)
    epochs = added(count, min(count, KEPT))
    if count <= KEPT:
        begins = 2  # where the first epoch began is on record, and it is not there any more
    for epoch in (count, count + 1):
        starts = batch.starts(topics, epochs)  # type: ignore[arg-type]
        assert [*starts.values()] == [begins], "the first epoch over the whole history, or the next"
        now = read("bids", begins, 10 * count)
        outputs = (OutputEnds("out", "id of out", (Offset(epoch + 2),)),)
        epochs.admit(Offset(2 * epoch), Opened(Epoch(epoch), Millis(0), (now,), outputs, "f"))
        replaced = [(int(was), int(end)) for _, _, was, end in batch.replaced(epochs)]
        assert replaced == [(0, count + 2) if epoch == count else (count + 2, count + 3)]
        epochs.admit(Offset(2 * epoch + 1), Completed(Epoch(epoch), Millis(0), (), 0))


@pytest.mark.parametrize("trimmed", [False, True], ids=["all is known", "trimmed"])
@pytest.mark.parametrize(("adds", "begins"), [(True, 0), (False, 6)])
def test_the_whole_history_replaces_what_epochs_have_left_that_were_abandoned_before_the_first_complete_one(
    adds: bool, begins: int, trimmed: bool
) -> None:
    """An epoch over the whole history has replaced it already; one of what is new has not."""
    flow = fk.Flow("f", regime=fk.Batch())
    flow.source("bids", key="n", value=fk.Json({"n": int})).sink("out", key="n", value=fk.Json())
    epochs = Epochs()
    for epoch, end in ((0, 3), (1, 6), (2, 9)):
        outputs = (OutputEnds("out", "id of out", (Offset(end),)),)
        opened = Opened(Epoch(epoch), Millis(0), (read("bids", 0, 10),), outputs, "f", adds=adds and epoch < 2)
        ended = Abandoned(opened.epoch, Millis(0), "") if epoch == 0 else Completed(opened.epoch, Millis(0), (), 0)
        if epoch > 0 or not trimmed:
            epochs.admit(Offset(2 * epoch), opened)
        if (epoch == 0 and not trimmed) or epoch == 1:
            epochs.admit(Offset(2 * epoch + 1), ended)
    assert [(int(was), int(end)) for _, _, was, end in bound(flow).replaced(epochs)] == [(begins, 9)]


def test_what_another_definition_has_read_may_still_lack_its_dead_letters() -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    flow.source("bids", value=fk.Json({"n": int})).sink("out", value=fk.Json())
    batch, epochs = bound(flow), Epochs()
    assert batch.dead_letters_from(epochs) == {}
    for epoch, fingerprint, known in ((0, batch.stage.fingerprint, {("bids", 0): 7}), (1, "of another", {})):
        opened = Opened(Epoch(epoch), Millis(0), (read("bids", 0, 7),), (), fingerprint)
        epochs.admit(Offset(2 * epoch), opened)
        epochs.admit(Offset(2 * epoch + 1), Completed(Epoch(epoch), Millis(0), (), 0))
        assert batch.dead_letters_from(epochs) == known


def test_only_what_epochs_have_left_can_be_left_out() -> None:
    epochs = Epochs()
    with pytest.raises(ConfigError, match="no epoch of 'totals' is complete"):
        check_history("totals", epochs)
    for epoch, start in ((0, 0), (1, 5), (2, 0), (3, 15)):
        opened = Opened(Epoch(epoch), Millis(0), (read("bids", start, 5 * epoch + 5),), (), "f")
        epochs.admit(Offset(2 * epoch), opened)
        with pytest.raises(ConfigError, match=f"epoch {epoch} of 'totals' is open"):
            check_history("totals", epochs)
        epochs.admit(Offset(2 * epoch + 1), Completed(Epoch(epoch), Millis(0), (), 0))
        if epoch != 2:
            check_history("totals", epochs)
            continue
        with pytest.raises(ConfigError, match="read the whole history"):
            check_history("totals", epochs)
