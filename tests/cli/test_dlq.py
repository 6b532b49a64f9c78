"""Dead letters from the command line, on a real broker: counted, shown, and replayed, each once, whoever is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Message, Producer
from tests.bad_input.stand import Stand
from tests.cli.show.test_peek import BEGIN, DAY
from tests.reading import read_topics
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.checkpoint.ids import OwnerId
from falkirk.cli.main import falkirk
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.transactions.rewriting import Rewriter
from falkirk.errors import ClusterError, ConfigError, FalkirkError, IdentityError
from falkirk.runtime.inspect import dead_letters
from falkirk.runtime.inspect.dead_letters import DeadLetters, Replay
from falkirk.runtime.inspect.letters import HEADER, Choice

pytestmark = pytest.mark.kafka

KILLED = """
import os, signal, sys
from falkirk.cli.main import falkirk
from falkirk.connectors.kafka.transactions import rewriting
from falkirk.runtime.inspect import dead_letters

method, when, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
dead_letters.SLICE = 2
real = rewriting.initialised

class Deadly:
    "A producer whose user dies at a call."
    def __init__(self, producer):
        self.producer, self.left = producer, number
    def __getattr__(self, name):
        function = getattr(self.producer, name)
        def call(*given):
            self.left -= name == method
            if name == method and not self.left and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*given)
            if name == method and not self.left:
                self.producer.flush(5)
                os.kill(os.getpid(), signal.SIGKILL)
            return result
        return call

rewriting.initialised = lambda *given: Deadly(real(*given))
falkirk(sys.argv[4:])
"""


class Bench:
    """An app with dead letters: of its records, every third does not decode, or fails in a function."""

    def __init__(self, brokers: str, prefix: str, folder: Path) -> None:
        self.stand = Stand(brokers, prefix, folder)
        self.app, self.bids = self.stand.name, self.stand.topic(partitions=2)
        producer = Producer({"bootstrap.servers": brokers, "partitioner": "murmur2", "enable.idempotence": True})
        for i in range(24):
            value = b"{" if i % 6 == 0 else json.dumps({"auction": i, "price": -i if i % 6 == 3 else i}).encode()
            headers = [("trace", str(i).encode())]
            producer.produce(self.bids, value, str(i), headers=headers, timestamp=BEGIN + i)
        producer.flush()

    def flow(self) -> fk.Flow:
        flow = fk.Flow(self.app)
        source = flow.source(self.bids, key="auction", value=fk.Json({"auction": fk.Int64, "price": fk.Int64}))
        source.map(positive, on_error=fk.DeadLetter()).sink(f"{self.stand.prefix}out", key="auction", value=fk.Json())
        return flow

    def run(self) -> None:
        self.stand.run(self.flow())

    def dlq(self, *arguments: str) -> list[dict[str, Any]]:
        command = ["dlq", arguments[0], self.app, *arguments[1:], "--brokers", self.stand.brokers]
        found = CliRunner().invoke(falkirk, command, catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return [json.loads(line) for line in found.stdout.splitlines()]

    def messages(self, topic: str) -> list[Message]:
        """All that a read_committed reader sees."""
        return [*read_topics(self.stand.brokers, topic)]

    def copies(self) -> Counter[bytes | None]:
        """How often each key is in the source."""
        return Counter(message.key() for message in self.messages(self.bids))


def positive(row: dict[str, Any]) -> dict[str, Any]:
    if row["price"] < 0:
        raise ValueError(f"a price of {row['price']}")
    return row


@pytest.fixture
def bench(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(kafka, topic_prefix, tmp_path)
    yield made
    made.stand.close()


@pytest.mark.slow
def test_letters_are_listed_shown_and_replayed_once_whoever_is_killed(bench: Bench) -> None:
    bench.run()
    undecoded, failed = sorted(bench.dlq("list", "--json"), key=lambda kind: str(kind["operator"]), reverse=True)
    assert (undecoded["operator"], undecoded["letters"], undecoded["topic"]) == (f"source {bench.bids}", 4, bench.bids)
    assert (failed["operator"], failed["letters"], failed["replayed"]) == ("map positive", 4, 0)
    assert failed["reason"] == "ValueError: a price of -…"
    assert (failed["first"], failed["last"]) == (f"{DAY}T00:00:00.003Z", f"{DAY}T00:00:00.021Z")
    (shown,) = bench.dlq("show", "--reason", "a price of -9", "--json")
    assert (shown["key"], shown["payload"], shown["attempt"]) == ("9", '{"auction": 9, "price": -9}', 0)
    assert bench.dlq("replay", "--dry-run") == [0]

    script = bench.stand.folder / "killed.py"
    script.write_text(KILLED)
    places = [("produce", "after", 1), ("commit_transaction", "before", 2), ("commit_transaction", "after", 1)]
    for method, when, number in places:
        command = [sys.executable, str(script), method, when, str(number), "dlq", "replay", bench.app]
        done = subprocess.run(
            [*command, "--brokers", bench.stand.brokers], timeout=PATIENCE_S, check=False, capture_output=True
        )
        assert done.returncode == -9, done.stderr
    # The second was killed with one slice committed, the third with another.
    assert bench.dlq("replay") == [4]
    assert bench.dlq("replay") == [0]
    bad = {str(i).encode() for i in range(0, 24, 3)}
    copies = bench.copies()
    assert copies == Counter({str(i).encode(): 1 + (str(i).encode() in bad) for i in range(24)})

    by_key: dict[bytes, list[Any]] = {}
    for record in bench.messages(bench.bids):
        by_key.setdefault(record.key(), []).append(record)
    for key in bad:
        was, now = by_key[key]
        assert (now.value(), now.partition(), now.timestamp()) == (was.value(), was.partition(), was.timestamp())
        assert now.headers() == [*was.headers(), (HEADER, b"1")]

    bench.run()
    assert {kind["failed_again"] for kind in bench.dlq("list", "--json")} == {4}
    assert {letter["attempt"] for letter in bench.dlq("show", "-n", "8", "--json")} == {1}
    assert bench.dlq("replay") == [0]
    assert bench.dlq("replay", "--again", "--offset", "0-99999", "--reason", "a price of -9") == [1]
    (last,) = [m for m in bench.messages(bench.bids) if (HEADER, b"2") in (m.headers() or [])]
    assert (last.key(), last.headers()) == (b"9", [("trace", b"9"), (HEADER, b"2")])


def test_of_two_replays_the_later_one_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.run()
    monkeypatch.setattr(dead_letters, "SLICE", 3)
    settings = bench.stand.settings
    letters = DeadLetters(bench.app, settings, Topics(settings.cluster()))

    def another(_: int) -> None:
        Rewriter(settings.cluster(), OwnerId(f"{bench.app}.dlq-replay"), letters.replays, 1_000_000)

    with pytest.raises(ClusterError, match="topic 'nowhere' does not exist"):
        Replay(letters, Choice(), "nowhere", False, lambda _: None).run()
    with pytest.raises(IdentityError, match="another replay of this app has begun"):
        Replay(letters, Choice(), None, False, another).run()
    recent = bench.stand.topic("recent", partitions=1, message_timestamp_before_max_ms="1000")
    with pytest.raises(FalkirkError) as refused:
        Replay(letters, Choice(), recent, False, lambda _: None).run()
    assert refused.value.where == f"topic {recent}, partition 0"
    copies = bench.stand.topic("copies", partitions=3)
    assert Replay(letters, Choice(), copies, False, lambda _: None).run() == 5
    placed = {(m.key(), m.partition()) for m in bench.messages(copies)}
    assert len(placed) == 5
    with pytest.raises(ConfigError, match="is not an offset"):
        bench.dlq("list", "--offset", "x")
