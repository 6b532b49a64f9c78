"""An app that reads from another cluster than its own: exact through every death, and clear about what is wrong."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import pytest
from click.testing import CliRunner
from confluent_kafka import Message, Producer
from tests.cli.live import kill_one
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import TopicPartition
from falkirk.cli.main import falkirk
from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.reading.peek import ALL, TopicPeek
from falkirk.connectors.spark.division import LOST
from falkirk.connectors.spark.ranges import chunks
from falkirk.errors import ClusterError, ConfigError, FalkirkError, SourceError, UnreachableError
from falkirk.runtime.app.app import App, prepare
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.inspect import inputs
from falkirk.stream.flow.load import load_flow

pytestmark = pytest.mark.kafka

FLOW = """
from __future__ import annotations
import falkirk as fk

BID = fk.Json({{"id": fk.Int64, "auction": fk.Int64}})
flow = fk.Flow("{name}", regime=fk.EagerCheckpoint(step="20ms", every="1s"))
here = flow.source("here", topic="{prefix}bids", key="auction", value=BID)
there = flow.source("there", topic="{prefix}bids", cluster="sales", key="auction", value=BID)
both = here.concat(there)
both.sink("copied", topic="{prefix}copied", key="id", value=fk.Json())
both.group_by("auction", id="counts").agg(n=fk.len()).sink("counts", topic="{prefix}counts", key="auction", value=fk.Json())
lazy = there.with_regime(fk.LazyCheckpoint(step="20ms", every="1s"), id="lazy")
lazy.group_by("auction", id="sums").agg(sum=fk.sum("id")).sink("sums", topic="{prefix}sums", key="auction", value=fk.Json())
"""
MATCHED = """
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{name}", regime=fk.EagerCheckpoint(step="20ms", every="1s"))
there = flow.source("there", topic=fk.Pattern("{prefix}bids.*"), cluster="sales", value=fk.Json({{"id": fk.Int64}}))
there.sink("copied", topic="{prefix}copied", key="id", value=fk.Json())
"""
AUCTIONS = 7
IDEMPOTENT = {"enable.idempotence": True, "partitioner": "murmur2", "linger.ms": 5}
"""A producer that outlives its broker, and writes each record once all the same."""


class Trial:
    """The app, what it was sent, and the commands on it."""

    def __init__(self, own: str, sales: str, prefix: str, folder: Path, flow: str = FLOW) -> None:
        self.own, self.sales, self.prefix, self.folder, self.name = own, sales, prefix, folder, f"{prefix}app"
        self.bids, self.target = f"{prefix}bids", f"{folder / 'app.py'}:flow"
        (folder / "app.py").write_text(flow.format(name=self.name, prefix=prefix))
        self.sent: dict[str, list[int]] = {own: [], sales: []}
        self.processes: list[subprocess.Popen[str]] = []
        self._ids, self._producers = itertools.count(), dict[str, Producer]()
        for brokers in (own, sales):
            Topics(Cluster(brokers)).create(self.bids, 2, 1, {})

    def feed(self, brokers: str, count: int, topic: str = "") -> None:
        """Bids with numbers of their own, into one cluster."""
        self._producers.setdefault(brokers, Producer({"bootstrap.servers": brokers, **IDEMPOTENT}))
        for i in itertools.islice(self._ids, count):
            bid = {"id": i, "auction": i % AUCTIONS}
            self._producers[brokers].produce(topic or self.bids, json.dumps(bid), str(i % AUCTIONS))
            self.sent[brokers].append(i)

    def flush(self) -> None:
        """Until all is there."""
        assert all(producer.flush(PATIENCE_S) == 0 for producer in self._producers.values())

    @contextmanager
    def feeding(self) -> Iterator[None]:
        """Into both clusters all the time, some hundred bids a second."""
        stop = threading.Event()

        def feed() -> None:
            while not stop.wait(0.02):
                self.feed(self.own, 10)
                self.feed(self.sales, 10)

        thread = threading.Thread(target=feed)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def run(self, *arguments: str, stderr: int | IO[str] = subprocess.PIPE) -> subprocess.Popen[str]:
        """Begin to run the app."""
        command = [sys.executable, "-m", "falkirk", "run", "app.py:flow", *arguments, *self._clusters]
        process = subprocess.Popen(command, cwd=self.folder, text=True, stdout=subprocess.DEVNULL, stderr=stderr)
        self.processes.append(process)
        return process

    def ask(self, *arguments: str) -> tuple[int, str]:
        """A command's exit code and output, in this process."""
        done = CliRunner().invoke(falkirk, [*arguments, *self._clusters])
        if isinstance(done.exception, FalkirkError):
            return done.exception.exit_code, str(done.exception)
        return done.exit_code, done.stdout if done.exit_code == 0 else done.output

    @property
    def _clusters(self) -> list[str]:
        return ["--brokers", self.own, "--cluster", f"sales={self.sales}"]

    def prepared(self, **others: Cluster) -> App:
        """The app as a run begins with it, with other clusters."""
        settings = Settings(self.own, str(self.folder / "state"), clusters=others)
        return prepare(load_flow(self.target).plan(), settings, Topics(settings.cluster()))

    def messages(self, name: str) -> list[Message]:
        """What a read_committed reader sees of an output, partition by partition; nothing before it is made."""
        cluster, topic = Cluster(self.own), self.prefix + name
        topics = Topics(cluster)
        if not (found := topics.describe([topic])):
            return []
        with closing(TopicPeek(cluster, topics, found[topic])) as peek:
            return sorted(peek.first(ALL), key=lambda m: (m.partition() or 0, m.offset() or 0))

    def records(self, name: str) -> list[dict[str, Any]]:
        """Their values."""
        return [json.loads(value) for m in self.messages(name) if (value := m.value()) != b"no JSON" and value]

    def assert_exact(self) -> None:
        """Each record was copied once, and counted once on each side."""
        ids = [i for some in self.sent.values() for i in some]
        copied = Counter(row["id"] for row in self.records("copied"))
        assert copied == Counter(ids), (copied - Counter(ids), Counter(ids) - copied)
        counts = {row["auction"]: row["n"] for row in self.records("counts")}
        assert counts == Counter(i % AUCTIONS for i in ids)
        sums: dict[int, int] = defaultdict(int)
        for i in self.sent[self.sales]:
            sums[i % AUCTIONS] += i
        assert {row["auction"]: row["sum"] for row in self.records("sums")} == sums

    def copied(self, brokers: str) -> int:
        """How many records of a cluster are copied; 0 while nobody answers."""
        try:
            return len(set(self.sent[brokers]) & {row["id"] for row in self.records("copied")})
        except FalkirkError:  # whoever is asked may be dead just now
            return 0

    def moved(self, brokers: str, run: subprocess.Popen[str]) -> None:
        """Until a few hundred more are than now."""
        before, deadline = self.copied(brokers), time.monotonic() + PATIENCE_S
        while self.copied(brokers) < before + 300:
            assert run.poll() is None
            assert time.monotonic() < deadline, f"of {brokers}: {before} before, {self.copied(brokers)} now"
            time.sleep(0.05)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The brokers of another cluster, which no test here stops."""
    with EmbeddedKafka(tmp_path_factory.mktemp("sales")) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def ran(kafka: str, sales: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """An app that has read all that there was: 300 bids here, 500 there, and one there that is none."""
    trial = Trial(kafka, sales, f"clusters-{uuid4().hex[:8]}-", tmp_path_factory.mktemp("clusters"))
    trial.feed(kafka, 300)
    trial.feed(sales, 500)
    producer = Producer({"bootstrap.servers": sales, "enable.idempotence": True})
    producer.produce(trial.bids, b"no JSON", b"1", headers=[("from", b"sales")])
    producer.flush()
    trial.flush()
    run = trial.run("--until", "end")
    _, err = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, err
    assert "everything is processed: 801 input records" in err
    yield trial
    trial.close()


@pytest.mark.slow
def test_an_app_reads_from_two_clusters_to_the_end(ran: Trial) -> None:
    ran.assert_exact()


@pytest.mark.slow
def test_it_is_checked_that_the_other_cluster_is_as_it_must_be(ran: Trial) -> None:
    code, out = ran.ask("check", ran.target, "--json", "--state-dir", str(ran.folder / ".falkirk"))
    assert code == 0, out
    tried = {found["what"]: found["words"] for found in json.loads(out)}
    assert ran.sales in tried["brokers of sales"]
    assert "of the last 100 decode" in tried[f"records of sales:{ran.bids}"]
    assert tried["rights in sales"] == "of topics and groups, as far as they are there"


def test_the_rights_in_the_other_cluster_are_to_read(ran: Trial) -> None:
    code, out = ran.ask("topics", ran.target, "--acls", "--user", "app")
    assert code == 0, out
    there = [line for line in out.splitlines() if ran.sales in line]
    rights = "--operation Read --operation Describe --operation DescribeConfigs"
    assert any(line.endswith(f"{rights} --topic {ran.bids}") for line in there)
    assert len(there) == 3  # and the groups that nobody joins
    assert not any("Write" in line for line in there)


def test_status_says_how_far_the_app_is_in_each_cluster(ran: Trial) -> None:
    def lags() -> dict[str, int]:
        code, out = ran.ask("status", ran.name, "--json")
        assert code == 0, out
        inputs = [i for task in json.loads(out)["tasks"] if task["task"].startswith("sums/") for i in task["inputs"]]
        return {topic: sum(i["lag"] for i in inputs if i["topic"] == topic) for topic in {i["topic"] for i in inputs}}

    before = lags()
    assert before.keys() == {f"sales:{ran.bids}"}
    producer = Producer({"bootstrap.servers": ran.sales, "enable.idempotence": True})
    producer.produce(ran.bids, b"not read yet", b"1")
    producer.flush()
    assert lags() == {f"sales:{ran.bids}": before[f"sales:{ran.bids}"] + 1}


def test_status_says_what_it_can_while_the_other_cluster_is_away(ran: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "PATIENCE", 1.0)
    monkeypatch.setattr(ran, "sales", "127.0.0.1:1")
    code, out = ran.ask("status", ran.name, "--json")
    assert code == 0, out
    status = json.loads(out)
    assert status["silent"] == ["sales"]
    lags = {i["topic"]: i["lag"] for task in status["tasks"] for i in task["inputs"]}
    assert lags == {ran.bids: 0, f"sales:{ran.bids}": None}
    assert status["lag"] == 0
    assert "cluster sales does not answer" in ran.ask("status", ran.name)[1]


def test_the_input_behind_a_record_is_found_in_the_other_cluster(ran: Trial) -> None:
    code, out = ran.ask("why", f"{ran.prefix}sums:0:0", "--records", "--flow", ran.target, "--json")
    assert code == 0, out
    why = json.loads(out)
    assert {read["topic"] for read in why["sources"]} == {f"sales:{ran.bids}"}
    assert {record["topic"] for record in why["records"]} == {f"sales:{ran.bids}"}
    code, out = ran.ask("peek", ran.target, "there", "-n", "3", "--json")
    assert (code, len(out.splitlines())) == (0, 3), out


def test_letters_of_another_cluster_are_replayed_into_a_topic_of_the_own(ran: Trial) -> None:
    code, out = ran.ask("dlq", "show", ran.name, "--json")
    assert code == 0, out
    assert {json.loads(line)["topic"] for line in out.splitlines()} == {f"sales:{ran.bids}"}
    code, out = ran.ask("dlq", "replay", ran.name)
    assert (code, "the app writes only to its own cluster" in out, "--to TOPIC" in out) == (2, True, True), out
    code, out = ran.ask("dlq", "replay", ran.name, "--to", f"{ran.prefix}counts")
    assert (code, out.splitlines()[-1]) == (0, "1"), out
    [record] = [m for m in ran.messages("counts") if m.value() == b"no JSON"]
    assert dict(record.headers() or [])["from"] == b"sales"


def test_a_task_of_sparks_reads_its_range_there(ran: Trial) -> None:
    """For batch parts and backfills, by the same settings."""
    cluster = Cluster(ran.own, others={"sales": Cluster(ran.sales, name="sales")})
    place, topics = TopicPartition(f"sales:{ran.bids}", 0), Topics(cluster)
    info, end = topics.describe([place.topic])[place.topic], topics.offsets([place], "latest")[place]
    read = [m for some in chunks(cluster, place, info.id, 0, end, lost=LOST, patience=30) for m in some]
    ids = {json.loads(value)["id"] for m in read if (value := m.value() or b"").startswith(b"{")}
    assert ids
    assert ids <= set(ran.sent[ran.sales])
    with pytest.raises(SourceError, match="recreated"):
        list(chunks(cluster, place, "another id", 0, end, lost=LOST, patience=30))


def test_another_cluster_under_the_name_is_not_taken_for_the_one_that_was_read(ran: Trial) -> None:
    with pytest.raises(SourceError, match=f"topic 'sales:{ran.bids}' was deleted and recreated") as caught:
        ran.prepared(sales=Cluster(ran.own, name="sales"))
    assert "has cluster sales other brokers now than it had?" in caught.value.hint


@pytest.mark.slow
def test_what_is_wrong_with_the_other_cluster_is_said_before_anything_is_made(
    kafka: str, sales: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, asked = Trial(kafka, sales, topic_prefix, tmp_path), Topics.check_reachable
    monkeypatch.setattr(Topics, "check_reachable", lambda topics: asked(topics, 2.0))
    with pytest.raises(ConfigError, match="--cluster sales=HOST:PORT") as wrong:
        trial.prepared(hr=Cluster("127.0.0.1:1", name="hr"))
    assert "those that are given: hr" in wrong.value.where
    with pytest.raises(UnreachableError, match=r"no broker answers at 127\.0\.0\.1:1 \(cluster sales\)"):
        trial.prepared(sales=Cluster("127.0.0.1:1", name="sales"))
    Topics(Cluster(sales)).delete([trial.bids])
    with pytest.raises(ClusterError, match=f"topic 'sales:{trial.bids}' does not exist"):
        trial.prepared(sales=Cluster(sales, name="sales"))
    assert not any(name.startswith(f"falkirk.{trial.name}") for name in Topics(Cluster(kafka)).names())


@pytest.mark.slow
def test_topics_of_another_cluster_join_a_pattern_while_the_app_is_killed(
    kafka: str, sales: str, topic_prefix: str, tmp_path: Path
) -> None:
    trial = Trial(kafka, sales, topic_prefix, tmp_path, MATCHED)
    try:
        trial.feed(sales, 400)
        trial.moved(sales, run := trial.run("--workers", "2"))
        Topics(Cluster(sales)).create(joining := f"{trial.bids}-too", 3, 1, {})
        trial.feed(sales, 400, joining)
        trial.moved(sales, run)
        run.kill()
        trial.feed(sales, 100, joining)
        trial.flush()
        run = trial.run("--until", "end")
        assert run.wait(PATIENCE_S) == 0
        assert Counter(row["id"] for row in trial.records("copied")) == Counter(trial.sent[sales])
    finally:
        trial.close()


@pytest.mark.slow
def test_every_record_of_both_clusters_counts_once_whatever_is_killed(
    embedded: Callable[..., EmbeddedKafka], topic_prefix: str, tmp_path: Path
) -> None:
    """A worker, the broker of each cluster and the whole run die with -9, all the while that records come in. Without the
    other cluster the app goes on with what is in its own."""
    own, sales = embedded("own"), embedded("sales")
    trial = Trial(own.start(), sales.start(), topic_prefix, tmp_path)
    try:
        with trial.feeding():
            run = trial.run("--workers", "2", stderr=(tmp_path / "said").open("w"))
            trial.moved(trial.sales, run)
            kill_one(run)
            trial.moved(trial.sales, run)
            sales.kill()
            trial.moved(trial.own, run)
            sales.start()
            trial.moved(trial.sales, run)
            own.kill()
            own.start()
            trial.moved(trial.sales, run)
            run.kill()  # and with it its workers
            run.wait()
        trial.flush()
        run = trial.run("--until", "end")
        assert run.wait(PATIENCE_S) == 0, run.stderr and run.stderr.read()
        trial.assert_exact()
    finally:
        trial.close()
