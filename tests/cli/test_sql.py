"""`falkirk sql` on a real Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from tests.cli.live import committed
from tests.waiting import PATIENCE_S

from falkirk.cli.main import falkirk
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.errors import ConfigError


@pytest.mark.kafka
def test_a_file_of_sql_runs_to_the_end_of_its_topics(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    bids, counts = f"{topic_prefix}bids", f"{topic_prefix}counts"
    (tmp_path / f"{topic_prefix}shop.sql").write_text(
        f"create table bids (auction bigint) with (topic='{bids}', key='auction');\n"
        f"create table counts (auction bigint, n bigint) with (topic='{counts}', key='auction');\n"
        "insert into counts select auction, count(*) as n from bids group by auction;\n"
    )
    Topics(Cluster(kafka)).create(bids, 2, 1, {})
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2", "enable.idempotence": True})
    for i in range(700):
        producer.produce(bids, json.dumps({"auction": i % 7}), str(i % 7))
    producer.flush()
    command = [sys.executable, "-m", "falkirk", "sql", "--file", f"{topic_prefix}shop.sql", "--brokers", kafka]
    told = subprocess.run(
        [*command, "--until", "end", "--workers", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    last = {key: json.loads(value) for key, value, _ in committed(kafka, counts) if value is not None}
    assert last == {str(a).encode(): {"auction": a, "n": 100} for a in range(7)}


def test_explain_takes_a_file_of_sql_and_shows_its_queries(tmp_path: Path) -> None:
    file = tmp_path / "shop.sql"
    file.write_text("create table bids (price bigint); insert into dear select price from bids where price > 9")
    shown = CliRunner().invoke(falkirk, ["explain", str(file)])
    assert shown.exit_code == 0
    assert "sql     dear: SELECT price FROM bids WHERE price > 9" in shown.output


def test_a_file_of_another_name_is_refused() -> None:
    answer = CliRunner().invoke(falkirk, ["sql", "--file", "shop.txt"])
    assert isinstance(answer.exception, ConfigError)
    assert "is no file of SQL" in str(answer.exception)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ([], "no file given"),
        (["shop.txt"], "is no file of SQL"),
        (["shop.sql"], "no brokers given"),
        (["shop.sql", "--file", "barn.sql"], "there are two files"),
        (["shop.sql", "--tables", "tables.toml"], "--tables is for the prompt"),
        (["--file", "shop.sql", "--tables", "tables.toml"], "--tables is for the prompt"),
        (["--dev", "--tables", "none.toml"], "cannot read none.toml"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_starts(
    options: list[str], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(falkirk, ["sql", *options])
    assert isinstance(answer.exception, ConfigError)
    assert what in str(answer.exception)
