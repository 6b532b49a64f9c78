"""What a flow under test has written, keeps, and has called."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

import msgspec
import polars as pl

from falkirk.checkpoint.ids import TopicPartition
from falkirk.state.codec import prefix_end
from falkirk.stream.access.endpoints import View
from falkirk.stream.access.stored_state import table_of
from falkirk.stream.operators.sinks.outlet import OutletSink
from falkirk.stream.stages.plan import Plan
from falkirk.testing.cluster import Cluster, Message
from falkirk.testing.outlets import logged
from falkirk.testing.process import Process
from falkirk.testing.records import Sink, Sinks, sink_of


class Looking:
    """These methods of an `App`."""

    _cluster: Cluster
    _process: Process | None
    _sinks: dict[str, View]
    _outlets: dict[str, OutletSink]
    _written: dict[str, list[Message]]
    _at: Counter[TopicPartition]

    def _worker(self) -> Process:
        raise NotImplementedError

    @property
    def sinks(self) -> dict[str, Sink]:
        """What each sink has written, by the sink's name. Of a sink outside Kafka: a record for each row."""
        outside = {sink.id: logged(sink, self._written[topic]) for topic, sink in self._outlets.items()}
        return Sinks(outside | {name: sink_of(view, self._written[view.topic]) for name, view in self._sinks.items()})

    @property
    def dead_letters(self) -> list[dict[str, Any]]:
        """The dead letters, as dicts: each says where its record was (`topic`, `partition`, `offset`), and the
        `reason`.
        """
        found = [m.value() or b"{}" for topic in self._letters() for m in self._written[topic]]
        return [msgspec.json.decode(letter) for letter in found]

    def state(self, name: str) -> pl.DataFrame:
        """The state of a group or a process, by its id: a frame with the key's columns and the parts of aggregates, or
        a table's columns.

        `OPERATOR/TABLE` is another table of a process. Raises ConfigError for a name that does not exist.

        >>> import falkirk as fk
        >>> flow = fk.Flow("words")
        >>> words = flow.source("words", key="word", value=fk.Json({"word": str}))
        >>> words.group_by("word", id="counts").agg(n=fk.len()).sink("counts", key="word", value=fk.Json())
        >>> app = fk.testing.App(flow)
        >>> app.send("words", [{"word": "to"}])
        >>> app.run()
        >>> app.state("counts").rows(named=True)
        [{'word': 'to', 'n.rows': 1}]
        """
        table = table_of(self._plan, name)
        tasks = [task.owned for task in self._worker().tasks if task.bound.stage.id == table.stage]
        stores = [owned.opened() for owned in tasks]
        for owned, store in zip(tasks, stores, strict=True):
            table.check_whole(store.get, str(owned.task.id))
        scans = (store.scan(first, prefix_end(first)) for store in stores for first in table.prefixes())
        return table.frame(list(chain.from_iterable(scans)))

    @property
    def calls(self) -> Counter[str]:
        """How many calls each `enrich` has made, by its id: attempts that failed, and those of steps that a crash ended,
        count too.

        >>> import falkirk as fk
        >>> async def score(row):
        ...     return {"score": len(row["word"])}
        >>> flow = fk.Flow("words")
        >>> words = flow.source("words", value=fk.Json({"word": str}))
        >>> words.enrich(score, returns={"score": int}).sink("scored", value=fk.Json())
        >>> fk.testing.run(flow, {"words": [{"word": "to"}, {"word": "be"}]}).calls
        Counter({'score': 2})
        """
        if self._process is not None:
            self._process.note_calls()
        return Counter(self._cluster.calls)

    @property
    def _plan(self) -> Plan:
        return self._cluster.plan

    def _outputs(self) -> list[str]:
        return [*(view.topic for view in self._sinks.values()), *self._outlets, *self._letters()]

    def _letters(self) -> list[str]:
        return sorted({o.topic for part in self._plan.parts for o in part.outputs if o.kind == "dead_letters"})

    def _look(self) -> None:
        """Take in what has been committed to sinks and dead letters."""
        for topic, written in self._written.items():
            for p in range(self._cluster.counts[topic]):
                place = TopicPartition(topic, p)
                if found := self._cluster.read(place, self._at[place]):
                    written += found
                    self._at[place] = found[-1].offset() + 1
