"""Writes rows to a topic as its producers do: in the formats of the source that reads them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

import polars as pl
from confluent_kafka import KafkaError, Message, Producer

from falkirk.checkpoint.ids import Millis, cluster_of, name_of
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.clients import client
from falkirk.connectors.kafka.client.errors import translate
from falkirk.connectors.kafka.client.producing import failure, produce_all
from falkirk.errors import ClusterError, ConfigError, FalkirkError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.preflight import HOW
from falkirk.stream.access.producing import columns_of, encoded, placed, source_named, sources_of, topic_of
from falkirk.stream.formats import Json
from falkirk.stream.stages.plan import Plan
from falkirk.wording import counted

PATIENCE_S = 30.0
"""How long records may wait for a broker."""


class Sender:
    """Takes rows as lines of JSON, in whatever format the topic is.

    Its producer is idempotent: an acknowledged record exists once, even if a broker dies meanwhile. It writes as it goes, not
    in a transaction: if it is interrupted, what was sent until then stays.

    Raises ConfigError if the flow has no such source, and ClusterError if its topic does not exist.
    """

    def __init__(self, plan: Plan, name: str | None, settings: Settings, topics: Topics) -> None:
        """`name`: a source or table, or one of its topics; None if there is only one."""
        name = _only(plan) if name is None else name
        self.source = source_named(plan, name)
        self.topic = topic_of(self.source, name)
        found = topics.there(self.topic, f"{HOW}; falkirk dev creates the topics that its flow reads")
        self.sent = 0
        """Lines so far."""
        self.acknowledged = 0
        self._partitions, self._unkeyed = found.partitions, Counter[str]()
        self._lines = Json(columns_of(self.source), extra="refuse")
        self._failed: KafkaError | None = None
        """Of the first record that was not written."""
        self._broken: KafkaError | None = None
        """Of the producer, which takes nothing any more."""
        cluster = settings.cluster().of(cluster_of(self.topic))
        timeout = {"message.timeout.ms": int(PATIENCE_S * 1000), "enable.idempotence": True, "linger.ms": 5}
        self._producer = client(Producer, {**cluster.settings(), **timeout})

    def send(self, lines: Sequence[bytes]) -> None:
        """Write one row per line. Raises ConfigError at the first invalid line; those before it are sent."""
        rows = self._lines.decode(lines)
        if not rows.bad:
            self._write(rows.frame)
            return
        place, reason = rows.bad[0]
        self._write(rows.frame.head(place))
        columns = ", ".join(f"{name} {dtype}" for name, dtype in columns_of(self.source).items())
        raise ConfigError(
            f"line {self.sent + 1} is not a valid row of {self.source.id!r}: {reason}",
            where=lines[place].decode(errors="replace")[:200],
            hint=f"a line is a JSON object with these columns: {columns}. What was before it is sent",
        )

    def send_frame(self, rows: pl.DataFrame) -> None:
        """Write rows with the columns of the source."""
        self._write(rows)

    def settle(self) -> None:
        """Wait until all is acknowledged. Raises ClusterError."""
        left: list[int] = []
        self._called(lambda: left.append(self._producer.flush(PATIENCE_S + 1)))
        self._check()
        if any(left):
            raise ClusterError(
                f"{counted(left[0], 'record')} not acknowledged in {PATIENCE_S:g} s",
                where=f"topic {self.topic}",
                hint=self._how_far(),
            )

    def _write(self, rows: pl.DataFrame) -> None:
        records = encoded(self.source, rows, Millis(int(time.time() * 1000)))
        places = [placed(sent, self.topic, self._partitions, self._unkeyed) for sent in records]
        written = zip(places, records, strict=True)
        rows_written = ((place, s.key, s.value, s.millis, s.headers, self._delivered) for place, s in written)
        self._called(lambda: produce_all(self._producer, name_of(self.topic), rows_written))
        self._called(lambda: self._producer.poll(0))
        self.sent += rows.height
        self._check()

    def _called(self, call: Callable[[], object]) -> None:
        """Call the producer. Raises ClusterError if it takes nothing any more: the user may not write idempotently, for
        example, or the broker has lost records that it had acknowledged."""
        if self._broken is None and (failed := failure(call)) is not None:
            # Its first event is the cause; a call may fail of it before that has come.
            self._broken = (failure(self._producer.poll, 0.5) or failed).args[0]
        if self._broken is not None:
            raise self._in_words(self._broken)

    def _check(self) -> None:
        if self._failed is not None:
            raise self._in_words(self._failed)

    def _in_words(self, cause: KafkaError) -> FalkirkError:
        where = f"topic {self.topic}"
        error = translate(cause, where) or ClusterError(f"a record could not be written: {cause.str()}", where=where)
        error.hint = "; ".join(filter(None, (error.hint, self._how_far())))
        return error

    def _how_far(self) -> str:
        return (
            f"{counted(self.acknowledged, 'record')} acknowledged: the others may have been written too. "
            f"falkirk peek shows what is in the topic"
        )

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        self._failed = self._failed or error
        self.acknowledged += error is None


def _only(plan: Plan) -> str:
    names = list(sources_of(plan))
    if len(names) != 1:
        raise ConfigError("the flow reads from several", hint=f"choose one: {', '.join(names)}")
    return names[0]
