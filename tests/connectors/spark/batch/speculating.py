"""An epoch in a Spark of two executors that speculates: `python -m … BROKERS SOURCE SINK PROGRESS FOLDER MASTER`.

One result partition has nearly all records, so a copy of its task is begun while it is published. Spark's log of events is
left in the folder.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl
from tests.connectors.spark.batch.jobs import Totals, rows
from tests.connectors.spark.cluster.standalone import executor_flags

from falkirk.checkpoint.ids import Epoch, Offset
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.spark.epochs.epoch import run_epoch
from falkirk.connectors.spark.epochs.work import Publishing, Target
from falkirk.connectors.spark.session import plain_session
from falkirk.stream.batch import Piece
from falkirk.stream.dataflow.records import Records

RECORDS = 400_000
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.locality.wait": "0",
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.minTaskRuntime": "20ms",
    "spark.speculation.efficiency.enabled": "false",
}


@dataclass(frozen=True)
class Skewed(Totals):
    """All records in result partition 0, but for one in each of the others."""

    levels: int = 0

    def head(self, piece: Piece, chunks: Iterator[Records]) -> Iterator[pl.DataFrame]:
        count = sum(map(len, chunks))
        values = [b"%07d" % n for n in range(count * RECORDS)]
        yield rows(level=1, exchange=0, bucket=0, order=values, value=values, timestamp=5)
        yield rows(level=1, exchange=0, bucket=[1, 2, 3], order=b"0", value=[b"1", b"2", b"3"], timestamp=5)


def main(brokers: str, source: str, sink: str, progress: str, folder: str, master: str) -> None:
    events = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": folder, "spark.eventLog.compress": "false"}
    name, _, flags = executor_flags().partition("=")
    spark = plain_session("speculating", master=master, settings={**SETTINGS, name: flags, **events})
    cluster = Cluster(brokers)
    names = Publishing(Epoch(0), Offset(0), progress, progress, "skewed", (Target(sink, 2, keyed=False),))
    found = run_epoch(
        spark,
        Skewed(),
        cluster=cluster,
        pieces=[Piece(0, source, 0, 0, 1)],
        topic_ids={source: Topics(cluster).describe([source])[source].id},
        headers=[False],
        ghosts=[],
        publishing=names,
        on_progress=lambda _: None,
    )
    print(*found)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
