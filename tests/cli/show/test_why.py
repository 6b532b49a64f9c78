"""`falkirk why`, on a real broker."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from tests.cli.show.test_peek import FLOW, Peeking
from tests.connectors.spark.topics import Topic

from falkirk.checkpoint.epochs import Opened, OutputEnds, encode
from falkirk.checkpoint.ids import Epoch, InputPartition, Millis, Offset, TopicPartition
from falkirk.checkpoint.records import Range
from falkirk.cli.main import falkirk
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import ControlTopic
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.errors import ConfigError
from falkirk.runtime.layout.layout import LayoutRecord, TopicRecord, write_layout
from falkirk.stream.definition.names import control_topic, epochs_topic

pytestmark = pytest.mark.kafka


@pytest.mark.slow
def test_a_record_of_a_sink_leads_back_to_the_records_of_its_key(kafka: str, tmp_path: Path, topic_prefix: str) -> None:
    (tmp_path / "app.py").write_text(FLOW.format(prefix=topic_prefix))
    bids, counts = Topic(kafka, f"{topic_prefix}bids", 2), f"{topic_prefix}counts"
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2", "enable.idempotence": True})
    for i in range(20):
        producer.produce(bids.name, json.dumps({"auction": i % 4, "price": i % 3}), str(i % 4))
    producer.flush()
    run = ("run", "app.py:flow", "--until", "end", "--keep-steps", "1h", "--brokers", kafka)
    code, _, err = Peeking(kafka, tmp_path).call(*run)
    assert code == 0, err

    def said(*arguments: str) -> str:
        found = CliRunner().invoke(falkirk, [*arguments, "--brokers", kafka], catch_exceptions=False)
        assert found.exit_code == 0
        return found.output

    last = json.loads(said("peek", counts, "-n", "1", "--json"))
    place = f"{counts}:{last['partition']}:{last['offset']}"
    why = json.loads(said("why", place, "--records", "--all-keys", "--flow", f"{tmp_path / 'app.py'}:flow", "--json"))
    assert (why["app"], why["task"], why["step"]) == (f"{topic_prefix}app", last["task"], last["step"])
    assert "hint" not in why
    (edge,) = why["made"]["reads"]
    assert edge["kind"] == "edge"
    assert {by["task"] for by in edge["by"]} <= {f"{bids.name}/{p}" for p in (0, 1)}
    assert {r["topic"] for r in why["sources"]} == {bids.name}
    assert int(last["key"]) in {r["value"]["price"] for r in why["records"]}

    shown = said("why", place)
    assert f"step {last['step']} of task {last['task']}" in shown
    assert "from the sources" in shown
    latest = json.loads(said("why", f"{counts}:{last['partition']}:latest", "--json"))
    assert (latest["offset"], latest["made"]) == (last["offset"], why["made"])
    for wrong, words in [
        (f"{bids.name}:0:0", "no app of Falkirk wrote"),
        (f"{bids.name}:0:latest", "no app of Falkirk wrote"),
        (f"{counts}:0:99999", "there is no record"),
        (f"{counts}:7:0", "has no partition 7"),
        (counts, "is not TOPIC:PARTITION:OFFSET"),
        (f"{counts}:0:last", "is not TOPIC:PARTITION:OFFSET"),
        (f"{counts}:latest:0", "is not TOPIC:PARTITION:OFFSET"),
    ]:
        with pytest.raises(ConfigError, match=words):
            said("why", wrong)

    # What retention and the app's own trimming do, some time later.
    topics, steps = Topics(Cluster(kafka, {})), f"falkirk.{topic_prefix}app.steps"
    places = [TopicPartition(steps, p) for p in range(topics.describe([steps])[steps].partitions)]
    topics.trim(topics.offsets(places, "latest"))
    gone = json.loads(said("why", place, "--json"))
    assert (gone["task"], gone["step"], gone["sources"]) == (last["task"], last["step"], [])
    assert "--keep-steps" in gone["hint"]
    shown = said("why", place)
    assert "no step of the task is on record" in shown
    assert "to do: run the app with --keep-steps 1h" in shown


@pytest.mark.slow
def test_a_record_of_a_batch_part_leads_to_the_division_of_its_epoch(kafka: str, topic_prefix: str) -> None:
    cluster = Cluster(kafka, {})
    app, bids, totals = f"{topic_prefix}app", f"{topic_prefix}bids", f"{topic_prefix}totals"
    epochs = epochs_topic("falkirk", app, "totals")
    topics = Topics(cluster)
    for name in (bids, totals, epochs, control_topic("falkirk", app)):
        topics.create(name, 2, -1, {})
    roles = {bids: "source", totals: "sink", epochs: "epochs"}
    with closing(ControlTopic(cluster, control_topic("falkirk", app))) as control:
        named = {name: TopicRecord("id", 2, role) for name, role in roles.items()}  # type: ignore[arg-type]
        write_layout(control, LayoutRecord(1, app, (), named))
    division = tuple(Range(InputPartition("", bids, "id", p), Offset(0), Offset(10 * p)) for p in (0, 1))
    ends = (OutputEnds(totals, "id", (Offset(0), Offset(0))),)
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
    producer.produce(
        epochs, encode(Opened(Epoch(4), Millis(1_767_225_600_000), division, ends, "f", "host")), partition=0
    )
    for epoch in (b"4", b"3"):
        producer.produce(totals, b"{}", b"7", partition=0, headers={"falkirk-epoch": epoch})
    producer.flush()

    def said(place: str) -> str:
        found = CliRunner().invoke(falkirk, ["why", place, "--brokers", kafka, "--json"], catch_exceptions=False)
        assert found.exit_code == 0
        return found.output

    why = json.loads(said(f"{totals}:0:0"))
    assert (why["app"], why["epoch"], why["made"]["stage"], why["made"]["owner"]) == (app, 4, "totals", "host")
    assert {(r["partition"], r["end"]) for r in why["made"]["reads"]} == {(0, 0), (1, 10)}
    assert json.loads(said(f"{totals}:0:1"))["made"] == {"epoch": 3}
