"""Batch parts bound to topics, without a cluster: what an epoch reads, and from where."""

from __future__ import annotations

import falkirk as fk
from falkirk.checkpoint.epochs import Opened
from falkirk.checkpoint.ids import Epoch, InputPartition, Millis, Offset, TopicPartition
from falkirk.checkpoint.records import Range
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.runtime.app.batch_part import PIECE, BoundBatch, bind


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
