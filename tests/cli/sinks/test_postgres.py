"""PostgreSQL on a real broker, while workers are killed: the tables hold what a read_committed reader sees, once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.cli.live import kill_all, kill_one, table, until, workers
from tests.postgres import PASSWORD, Server
from tests.waiting import PATIENCE_S

from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.containers]

FLOW = """
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{prefix}app", regime=fk.EagerCheckpoint(step="20ms", every="1s"))
value = fk.Json({{"id": fk.Int64, "region": fk.String, "n": fk.Int64}})
users = flow.source("{prefix}users", key="id", value=value, changes="upsert")
users.sink("{prefix}out", key="id", value=fk.Json())
users.sink_postgres("users", "shop", key="id", every="100ms")
regions = users.group_by("region", id="regions").agg(users=fk.len(), n=fk.sum("n"))
regions.sink("{prefix}regions", key="region", value=fk.Json())
regions.sink_postgres("regions", "shop", key="region", every="50ms")
plain = flow.source("{prefix}bids", value=fk.Json({{"n": fk.Int64}}))
plain.sink_postgres("bids", "shop", every="50ms")
"""


@pytest.mark.slow
def test_tables_hold_what_is_committed_though_workers_and_the_server_are_killed(
    kafka: str,
    postgres: Server,
    name: str,
    topic_prefix: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    for topic in ("users", "bids", "out", "regions"):
        Topics(Cluster(kafka)).create(f"{topic_prefix}{topic}", 2, 1, {})
    (tmp_path / "app.py").write_text(FLOW.format(prefix=topic_prefix))
    (tmp_path / "falkirk.toml").write_text('[database.shop]\nurl = {file = "secret"}\n')
    (tmp_path / "secret").write_text(postgres.url(name) + "\n")
    producer, choice, sent = (
        Producer({"bootstrap.servers": kafka, "partitioner": "murmur2", "enable.idempotence": True}),
        random.Random(7),
        0,
    )

    def feed(count: int) -> None:
        nonlocal sent
        for n in range(sent, sent + count):
            id_ = choice.randrange(60)
            row = {"id": id_, "region": choice.choice("abcdef"), "n": n}
            value = None if choice.random() < 0.4 else json.dumps(row)
            producer.produce(f"{topic_prefix}users", value, str(id_))
            producer.produce(f"{topic_prefix}bids", json.dumps({"n": n}), partition=n % 2)
            producer.poll(0)
        sent += count
        producer.flush()

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "falkirk", "run", "app:flow", "--brokers", kafka, "--workers", "2"]
        command += ["--session-timeout", "1s", *arguments]
        run = subprocess.Popen(command, cwd=tmp_path, text=True, stderr=subprocess.PIPE)
        request.addfinalizer(lambda: kill_all(run) if run.poll() is None else None)
        return run

    def steps() -> int:
        with postgres.connect(name) as sql:
            return int(sql.execute("select sum(next_offset) from falkirk_positions").fetchone()[0] or 0)

    feed(300)
    run = start()
    until(run, lambda: exists(postgres, name) and steps())
    for _ in range(4):
        before = steps()
        feed(300)
        kill_one(run)
        until(run, lambda before=before: steps() > before and workers(run))
    postgres.kill()
    feed(300)
    kill_one(run)
    time.sleep(0.5)
    postgres.start()
    feed(300)
    kill_all(run)
    run = start("--until", "end")
    _, err = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, err
    assert PASSWORD not in err

    with postgres.connect(name) as sql:
        found = {t: sql.execute(f"select * from {t}").fetchall() for t in ("users", "regions", "bids")}
        chains = sql.execute("select sink, partition, count(*) from falkirk_positions group by 1, 2").fetchall()
    assert found["users"]
    assert set(found["users"]) == table(kafka, f"{topic_prefix}out")
    assert set(found["regions"]) == table(kafka, f"{topic_prefix}regions")
    assert Counter(n for (n,) in found["bids"]) == Counter(range(sent))
    assert len(chains) == 6
    assert all(count == 1 for _, _, count in chains)
    shown = subprocess.run(
        [sys.executable, "-m", "falkirk", "check", "app:flow", "--brokers", kafka],
        cwd=tmp_path, text=True, capture_output=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stdout
    assert "table of users" in shown.stdout
    assert "table public.users: its columns fit" in shown.stdout
    assert PASSWORD not in shown.stdout + shown.stderr


def exists(postgres: Server, name: str) -> bool:
    with postgres.connect(name) as sql:
        return bool(sql.execute("select to_regclass('falkirk_positions')").fetchone()[0])


def once(kafka: str, folder: Path, prefix: str, url: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a small flow to its end."""
    (folder / "app.py").write_text(
        f"import falkirk as fk\nflow = fk.Flow('{prefix}app', regime=fk.EagerCheckpoint())\n"
        f"flow.source('{prefix}bids', value=fk.Json({{'n': fk.Int64}})).sink_postgres('bids', 'shop')\n"
    )
    (folder / "falkirk.toml").write_text("" if url is None else f"[database.shop]\nurl = '{url}'\n")
    command = [sys.executable, "-m", "falkirk", "run", "app:flow", "--brokers", kafka, "--until", "end", *arguments]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False, timeout=PATIENCE_S)


@pytest.mark.slow
def test_what_keeps_a_run_from_its_table_is_said_at_the_start_or_waited_for(
    kafka: str, postgres: Server, name: str, topic_prefix: str, tmp_path: Path
) -> None:
    Topics(Cluster(kafka)).create(f"{topic_prefix}bids", 1, 1, {})
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
    producer.produce(f"{topic_prefix}bids", b'{"n": 1}')
    producer.flush()
    done = once(kafka, tmp_path, topic_prefix, None)
    assert done.returncode == 2
    assert "database 'shop' has no address" in done.stderr
    assert "FALKIRK_DATABASE_SHOP_URL" in done.stderr
    with postgres.connect(name) as sql:
        sql.execute("create table bids (n integer)")
        done = once(kafka, tmp_path, topic_prefix, postgres.url(name))
        assert done.returncode == 2
        assert "column 'n' is integer, and the flow's needs bigint" in done.stderr
        assert 'alter table "public"."bids" alter column "n" type bigint' in done.stderr
        sql.execute("drop table bids")
    other = f"{name}_later"
    (tmp_path / "falkirk.toml").write_text(f"[database.shop]\nurl = '{postgres.url(other)}'\n")
    command = [sys.executable, "-m", "falkirk", "run", "app:flow", "--brokers", kafka, "--state-dir", "away"]
    with (tmp_path / "said").open("w") as said:
        run = subprocess.Popen(command, cwd=tmp_path, text=True, stderr=said)
    try:
        for words in ("rows of table bids wait since 2", "sink bids cannot write: PostgreSQL gives no connection"):
            until(run, lambda words=words: words in (tmp_path / "said").read_text())
        with postgres.connect() as sql:
            sql.execute(f'create database "{other}"')
        until(run, lambda: "rows of table bids are written again" in (tmp_path / "said").read_text())
        with postgres.connect(other) as sql:
            until(run, lambda: sql.execute("select n from bids").fetchall() == [(1,)])
    finally:
        kill_all(run)
    assert PASSWORD not in (tmp_path / "said").read_text()
    with postgres.connect() as sql:
        sql.execute(f'drop database "{other}" with (force)')
