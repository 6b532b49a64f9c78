"""`falkirk why`, on a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from tests.cli.test_peek import FLOW, Peeking
from tests.connectors.spark.topics import Topic

from falkirk.cli.main import falkirk
from falkirk.errors import ConfigError

pytestmark = pytest.mark.kafka


def test_a_record_of_a_sink_leads_back_to_the_records_of_its_key(kafka: str, tmp_path: Path, topic_prefix: str) -> None:
    (tmp_path / "app.py").write_text(FLOW.format(prefix=topic_prefix))
    bids, counts = Topic(kafka, f"{topic_prefix}bids", 2), f"{topic_prefix}counts"
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2"})
    for i in range(20):
        producer.produce(bids.name, json.dumps({"auction": i % 4, "price": i % 3}), str(i % 4))
    producer.flush()
    code, _, err = Peeking(kafka, tmp_path).call("run", "app.py:flow", "--until", "end", "--brokers", kafka)
    assert code == 0, err

    def said(*arguments: str) -> str:
        found = CliRunner().invoke(falkirk, [*arguments, "--brokers", kafka], catch_exceptions=False)
        assert found.exit_code == 0
        return found.output

    last = json.loads(said("peek", counts, "-n", "1", "--json"))
    place = f"{counts}:{last['partition']}:{last['offset']}"
    why = json.loads(said("why", place, "--records", "--all-keys", "--flow", f"{tmp_path / 'app.py'}:flow", "--json"))
    assert (why["app"], why["task"], why["step"]) == (f"{topic_prefix}app", last["task"], last["step"])
    (edge,) = why["made"]["reads"]
    assert edge["kind"] == "edge"
    assert {by["task"] for by in edge["by"]} <= {f"{bids.name}/{p}" for p in (0, 1)}
    assert {r["topic"] for r in why["sources"]} == {bids.name}
    assert int(last["key"]) in {r["value"]["price"] for r in why["records"]}

    shown = said("why", place)
    assert f"step {last['step']} of task {last['task']}" in shown
    assert "from the sources" in shown
    for wrong, words in [
        (f"{bids.name}:0:0", "no app of Falkirk wrote"),
        (f"{counts}:0:99999", "there is no record"),
        (f"{counts}:7:0", "has no partition 7"),
        (counts, "is no TOPIC:PARTITION:OFFSET"),
    ]:
        with pytest.raises(ConfigError, match=words):
            said("why", wrong)
