"""What `falkirk check` and `falkirk topics` say of a cluster, and that they leave it as it is."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import orjson
import pytest
from click.testing import CliRunner
from tests.bad_input.stand import Stand, flow_file
from tests.waiting import PATIENCE_S

from falkirk.cli.commands.check import check_command
from falkirk.cli.commands.topics import topics
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import ClusterError, ConfigError
from falkirk.runtime.app.app import prepare
from falkirk.stream.flow.load import load_flow

pytestmark = pytest.mark.kafka


def told(command: click.Command, stand: Stand, *more: str) -> tuple[int, Any]:
    """The exit code of a command, and its JSON."""
    arguments = [stand.target(flow_file()), "--brokers", stand.brokers, "--json", *more]
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    return done.exit_code, json.loads(done.stdout)


def checked(stand: Stand, *more: str) -> dict[str, dict[str, Any]]:
    """What was found to be wrong, by what was tried."""
    code, found = told(check_command, stand, "--state-dir", stand.settings.state_dir, *more)
    wrong = {f["what"]: f for f in found if not f["ok"]}
    assert code == bool(wrong)
    assert all(f.get("hint") for f in wrong.values()), wrong
    return wrong


def topics_of(stand: Stand) -> set[str]:
    """This test's own: others make theirs on the same broker meanwhile."""
    return {topic for topic in stand.admin.list_topics(timeout=PATIENCE_S).topics if stand.prefix in topic}


@pytest.mark.slow
def test_what_a_flow_needs_is_tried_and_nothing_made(stand: Stand) -> None:
    source = f"{stand.prefix}bids"
    assert checked(stand).keys() == {f"source {source}", "tasks"}
    stand.topic()
    stand.put(b"1", b"no bid")
    before = topics_of(stand)
    wrong = checked(stand)
    assert wrong.keys() == {f"records of {source}"}
    assert "none of the last 1 decodes" in wrong[f"records of {source}"]["words"]
    stand.bids(50)
    assert checked(stand) == {}
    assert checked(stand, "--replication", "3").keys() == {"missing topics"}
    assert topics_of(stand) == before
    assert not Path(stand.settings.state_dir).exists()
    stand.go_on(flow_file())
    assert checked(stand, "--checkpoints", (stand.folder / "copies").as_uri()) == {}
    stand.configure(f"falkirk.{stand.name}.steps", retention_ms="1000")
    wrong = checked(stand, "--checkpoints", "s3://", "--state-dir", "/proc/nothing")
    assert wrong.keys() == {"own topics", "state directory", "checkpoint store"}
    assert "retention.ms=1000" in wrong["own topics"]["words"]
    assert "retention.ms=-1" in wrong["own topics"]["hint"]
    stand.grow(3)
    assert checked(stand).keys() == {"tasks"}


def test_records_with_other_keys_than_their_column_are_found_before_a_run_ends_at_one(stand: Stand) -> None:
    records = f"records of {stand.topic()}"
    stand.bids(20)
    partition, offset = stand.put(b"seven", orjson.dumps({"id": 20, "auction": 7, "price": 1}))
    wrong = checked(stand)
    assert wrong.keys() == {records}
    assert "the record's key is b'seven', but column auction encodes to b'7'" in wrong[records]["words"]
    assert f"partition {partition}, offset {offset}" in wrong[records]["words"]
    assert "repartition=True" in wrong[records]["hint"]
    given = [stand.target(flow_file(source='key="auction", repartition=True')), "--brokers", stand.brokers]
    done = CliRunner().invoke(check_command, [*given, "--state-dir", stand.settings.state_dir, "--json"])
    assert done.exit_code == 0, done.output


@pytest.mark.slow
def test_a_cluster_that_is_away_is_one_thing_and_the_rest_is_tried_all_the_same(stand: Stand) -> None:
    stand.brokers = "127.0.0.1:1"
    assert checked(stand, "--state-dir", "/proc/nothing").keys() == {"brokers", "state directory"}


def test_topics_are_printed_or_made(stand: Stand) -> None:
    stand.topic()
    code, printed = told(topics, stand, "--acls", "--user", "shop", "--replication", "1")
    assert code == 0
    own = f"falkirk.{stand.name}."
    missing = {t["name"]: t["partitions"] for t in printed["topics"] if not t["exists"]}
    assert missing == {
        f"{own}changelog.stats": 2, f"{own}control": 2, f"{own}dead-letters": 1, f"{own}steps": 2,
        f"{stand.prefix}stats": 2,
    }  # fmt: skip
    assert {"resource": "group", "name": stand.name, "prefixed": False}.items() <= next(
        acl for acl in printed["acls"] if acl["resource"] == "group"
    ).items()
    done = CliRunner().invoke(topics, [stand.target(flow_file()), "--brokers", stand.brokers], catch_exceptions=False)
    assert [line.split()[6] for line in done.stdout.splitlines()] == sorted(missing)
    code, _ = told(topics, stand, "--create")
    assert code == 0
    assert missing.keys() <= stand.admin.list_topics(timeout=PATIENCE_S).topics.keys()
    stand.bids(50)
    stand.go_on(flow_file())
    stand.assert_exact()
    _, after = told(topics, stand)
    assert all(t["exists"] for t in after["topics"])
    with pytest.raises(ConfigError, match="the name of the app's user"):
        told(topics, stand, "--acls")


def test_missing_sources_are_created_or_printed_when_asked(stand: Stand) -> None:
    with pytest.raises(ClusterError, match="does not exist"):
        told(topics, stand, "--create")
    with pytest.raises(ConfigError, match="--partitions"):
        told(topics, stand, "--create", "--partitions", "3")
    asked = [stand.target(flow_file()), "--brokers", stand.brokers, "--sources", "--partitions", "3"]
    printed = CliRunner().invoke(topics, asked, catch_exceptions=False)
    assert f"--topic {stand.prefix}bids --partitions 3" in printed.stdout
    assert "run this command again" in printed.stderr
    assert topics_of(stand) == set()
    made = CliRunner().invoke(topics, [*asked, "--create"], catch_exceptions=False)
    assert f"created topic {stand.prefix}bids, 3 partitions" in made.stderr
    assert stand.partitions(f"{stand.prefix}bids") == stand.partitions(f"falkirk.{stand.name}.steps") == 3
    again = CliRunner().invoke(topics, [*asked, "--create"], catch_exceptions=False)
    assert (again.exit_code, again.stderr) == (0, "")
    stand.bids(50)
    stand.go_on(flow_file())
    stand.assert_exact()


LOOKED_UP = """
value = fk.Json({"id": fk.Int64, "auction": fk.Int64, "price": fk.Int64})
flow = fk.Flow(NAME)
bids = flow.source(PREFIX + "bids", key="auction", value=value)
usual = bids.with_regime(fk.Batch(every="1h")).group_by("auction").agg(usual=fk.mean("price"))
usual.sink(PREFIX + "usual", key="auction", value=fk.Json())
schema = fk.Json({"auction": fk.Int64, "usual": fk.Float64})
table = flow.table(PREFIX + "usual", key="auction", value=schema, broadcast=True)
bids.lookup(table).sink(PREFIX + "beside", value=fk.Json())
"""


def test_a_table_that_a_batch_part_of_the_flow_writes_need_not_be_there(stand: Stand) -> None:
    stand.topic()
    stand.bids(10)
    arguments = [stand.target(LOOKED_UP), "--brokers", stand.brokers, "--json", "--state-dir", stand.settings.state_dir]
    done = CliRunner().invoke(check_command, arguments, catch_exceptions=False)
    found = {f["what"]: f for f in json.loads(done.stdout)}
    assert "made at the start" in found[f"table {stand.prefix}usual"]["words"]
    assert [what for what, f in found.items() if not f["ok"] and what != "Spark"] == []


HOUR = 3_600_000
WHOLE = """
whole = bids.with_columns(all=fk.lit(0)).group_by("all", id="whole").agg(n=fk.len())
whole.sink(PREFIX + "whole", key="all", value=fk.Json())
"""


def warnings(stand: Stand, flow: str) -> dict[str, str]:
    """What a check warns of. It succeeds all the same."""
    arguments = [stand.target(flow), "--brokers", stand.brokers, "--json", "--state-dir", stand.settings.state_dir]
    done = CliRunner().invoke(check_command, arguments, catch_exceptions=False)
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert all(f["hint"] for f in found if f.get("warning"))
    return {f["what"]: f["words"] for f in found if f.get("warning")}


def test_sinks_that_would_delete_results_of_old_records_are_named(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    bids, stats = stand.topic(retention_ms="-1"), stand.topic("stats", retention_ms=str(HOUR))
    now = int(time.time() * 1000)
    for hours, count in ((3, 2), (2, 1), (0, 5)):
        for i in range(count):
            stand.producer.produce(bids, orjson.dumps({"id": i, "auction": i}), str(i), timestamp=now - hours * HOUR)
    assert stand.producer.flush(PATIENCE_S) == 0
    words = (
        f"topic {stats} deletes records that are older than 1h (retention.ms), and 3 records of {bids} are older: so are "
        "their results"
    )
    assert warnings(stand, flow_file()) == {"retention": words}
    other = flow_file('bids = bids.repartition("auction")', source='key=None, start="latest"')
    assert warnings(stand, other) == {}
    assert warnings(stand, flow_file(source='key="auction", time="id"')) == {}
    through_an_edge = flow_file('bids = bids.repartition("auction")', source="key=None")
    assert warnings(stand, through_an_edge) == {"retention": words}
    stand.configure(stats, message_timestamp_type="LogAppendTime")
    assert warnings(stand, flow_file()) == {}
    stand.configure(stats, message_timestamp_type="CreateTime")
    plan, cluster = load_flow(stand.target(flow_file())).plan(), Topics(stand.settings.cluster())
    for said in (1, 1):  # a second start has read on: the oldest records say nothing of it
        prepare(plan, stand.settings, cluster)
        assert caplog.messages.count(words) == said


def test_a_stage_of_several_tasks_that_uses_one_is_named(stand: Stand) -> None:
    stand.topic()
    stand.bids(10)
    assert warnings(stand, flow_file(WHOLE)) == {
        "one task": "stage whole has 2 tasks, and all rows of group_by whole go to one task: all is the same in each of them"
    }
    stand.topic("one", partitions=1)
    one = flow_file(WHOLE).replace('PREFIX + "bids"', 'PREFIX + "one"')
    assert warnings(stand, one) == {}
