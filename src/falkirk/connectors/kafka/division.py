"""Reading recorded divisions again: exactly the records that each holds, one division after the other."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.ports import Ranges
from falkirk.connectors.kafka.config import Cluster, client
from falkirk.connectors.kafka.reader import ended, taken
from falkirk.errors import SourceError


class DivisionReader:
    """A read_committed consumer without a group, for one task's divisions in order.

    division(n+1).start = division(n).end, so the consumer is assigned once and what it read too far is kept for the next.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._consumer = client(Consumer, cluster.reader(committed=True))
        self._ahead: dict[TopicPartition, list[Message]] = {}
        self._position: dict[TopicPartition, Offset] = {}

    def read(self, ranges: Ranges) -> dict[TopicPartition, list[Message]]:
        """The messages of the ranges, in order. Raises SourceError where a range begins below the topic's retention."""
        self._begin({p: start for p, (start, _) in ranges.items() if p not in self._ahead})
        while any(self._position[p] < end for p, (_, end) in ranges.items()):
            self._fill(ranges)
        found = {}
        for place, (_, end) in ranges.items():
            ahead = self._ahead[place]
            cut = next((i for i, m in enumerate(ahead) if (m.offset() or 0) >= end), len(ahead))
            found[place], self._ahead[place] = ahead[:cut], ahead[cut:]
        return found

    def _begin(self, starts: dict[TopicPartition, Offset]) -> None:
        if not starts:
            return
        for topic in {p.topic for p in starts}:
            self._consumer.list_topics(topic, 5)
        self._consumer.incremental_assign([KafkaPartition(p.topic, p.partition, o) for p, o in starts.items()])
        self._ahead |= {p: [] for p in starts}
        self._position |= starts

    def _fill(self, ranges: Ranges) -> None:
        for message in taken(self._consumer, 10_000):
            place = TopicPartition(message.topic() or "", message.partition() or 0)
            error, offset = message.error(), Offset(message.offset() or 0)
            if error is None:
                self._ahead[place].append(message)
                self._position[place] = Offset(offset + 1)
            elif error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
                raise SourceError(
                    f"the records of a recorded step are gone: {error.str()}",
                    where=f"{place.topic}[{place.partition}] from offset {ranges[place][0] if place in ranges else '?'}",
                    hint="bring back the state directory or the checkpoint store with the newest version, or give the flow "
                    "another name: it then begins anew; a lazy regime's retention must outlast the time between versions",
                )
            elif ended(message):
                self._position[place] = max(self._position[place], offset)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()
