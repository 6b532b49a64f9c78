"""A flow that changes under its name, twice, and is killed on the way: each record follows from the flow of its step."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.cli.live import asleep, committed, kill_all, kill_one
from tests.reading import read_topics
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.records import Move, StepRecord, decode
from falkirk.checkpoint.steps import maker
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster

pytestmark = pytest.mark.kafka

FLOW = """
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{name}", regime=fk.EagerCheckpoint(step="50ms", every="1s", max_rows=500))
bids = flow.source("{prefix}bids", key="auction", value=fk.Json({{"auction": fk.Int64, "bidder": fk.Int64}}))
bids.group_by("auction", id="counts").agg(n=fk.len()).sink("{prefix}counts", key="auction", value=fk.Json())
"""
TOPS = 'bids.group_by("auction", id="tops").agg(top=fk.max("bidder")).sink("{prefix}tops", key="auction", value=fk.Json())\n'
BIDDERS = (
    'bids.group_by("bidder", id="bidders").agg(n=fk.len()).sink("{prefix}bidders", key="bidder", value=fk.Json())\n'
)

MIGRATED = FLOW.replace(
    'id="counts").agg(n=fk.len())',
    'id="counts", migrate=was).agg(n=fk.len(), top=fk.max("bidder"))',
).replace(
    "flow = ",
    """
from falkirk.stream.evolution import moving

moving.ROWS_A_STEP = 300
was = fk.From(1, agg={{"n": fk.len()}}, by=lambda row: {{"top.best": 100 * row["n.rows"]}})
flow = """,
)

REBUILT = """
from __future__ import annotations
import falkirk as fk
from falkirk.runtime.worker.reading import second_reading
from falkirk.stream.evolution import rebuilding

second_reading.FIRST = second_reading.MOST_RECORDS = rebuilding.ROWS_A_STEP = 100
flow = fk.Flow("{name}", regime=fk.REGIME(step="50ms", every="1s", max_rows=500))
bids = flow.source("{prefix}bids", key="auction", value=fk.Json({{"auction": fk.Int64, "bidder": fk.Int64}}))
some = bids.filter(fk.col("bidder") >= LEAST).group_by("auction", id="counts", version=VERSION)
some.agg(n=fk.len()MORE).sink("{prefix}counts", key="auction", value=fk.Json())
"""

SLOWLY = """
import time

ahead = rebuilding.Rebuilder.ahead


def slowly(*step):
    time.sleep(2)
    ahead(*step)


rebuilding.Rebuilder.ahead = slowly
"""
"""A shadow that is met while it works."""

READS_SLOWLY = """
import time

read = rebuilding.Rebuilder._read


def slowly(*step):
    time.sleep(1)
    return read(*step)


rebuilding.Rebuilder._read = slowly
"""
"""A worker that can be killed between two steps that read again."""

Table = dict[int, int]


class App:
    """An app's file, its topics, and the commands on it."""

    def __init__(self, brokers: str, prefix: str, folder: Path) -> None:
        self.brokers, self.prefix, self.folder = brokers, prefix, folder
        self.name, self.source = f"{prefix}app", f"{prefix}bids"
        Topics(Cluster(brokers)).create(self.source, 2, 1, {})
        self.process: subprocess.Popen[str] | None = None
        self.fed = 0

    def write(self, *parts: str, begin: str = FLOW, file: str = "app.py") -> None:
        text = "".join([begin, *parts]).format(name=self.name, prefix=self.prefix)
        (self.folder / file).write_text(text)

    def feed(self, count: int, auctions: int = 7) -> None:
        producer = Producer({"bootstrap.servers": self.brokers, "partitioner": "murmur2", "enable.idempotence": True})
        for i in range(self.fed, self.fed + count):
            producer.produce(self.source, json.dumps({"auction": i % auctions, "bidder": i % 11}), str(i % auctions))
            producer.poll(0)
        producer.flush()
        self.fed += count

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "falkirk", *arguments, "--brokers", self.brokers]
        self.process = subprocess.Popen(
            command, cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        return self.process

    def call(self, *arguments: str) -> tuple[int, str, str]:
        return ended(self.start(*arguments))

    def run_to_the_end(self) -> None:
        code, _, err = self.call("run", "app:flow", "--workers", "2", "--until", "end")
        assert code == 0, err

    def kill(self) -> None:
        """kill -9 of everything, at once."""
        assert self.process is not None
        kill_all(self.process)

    def records(self, topic: str) -> list[tuple[bytes | None, bytes | None, bytes]]:
        """Key, value and the mark of who made it: what is committed, partition by partition."""
        return committed(self.brokers, topic)

    def source_records(self) -> list[tuple[int, int, bytes]]:
        """Partition, offset and value of all that was fed."""
        found = read_topics(self.brokers, self.source)
        return [(m.partition() or 0, m.offset() or 0, m.value() or b"") for m in found]

    def table(self, name: str, column: str) -> Table:
        """The last value of each key; a counter that is written rises by no less than one each time."""
        table: Table = {}
        for key, value, _ in self.records(f"{self.prefix}{name}"):
            assert key is not None
            assert value is not None
            found = json.loads(value)[column]
            assert found > table.get(int(key), -1)
            table[int(key)] = found
        return table

    def steps(self, name: str = "") -> dict[str, list[StepRecord]]:
        found: dict[str, list[StepRecord]] = {}
        for _, value, _ in self.records(f"falkirk.{name or self.name}.steps"):
            if value is not None and isinstance(record := decode(value), StepRecord):
                found.setdefault(record.task, []).append(record)
        return found


@pytest.fixture
def app(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[App]:
    running = App(kafka, topic_prefix, tmp_path)
    yield running
    if running.process is not None and running.process.poll() is None:
        running.kill()


def counted(numbers: Iterator[int] | range, modulo: int) -> Table:
    return dict(Counter(i % modulo for i in numbers))


@pytest.mark.slow
def test_a_flow_gains_and_loses_operators_and_stages_while_it_is_killed(app: App) -> None:
    app.write()
    app.feed(1_000)
    app.run_to_the_end()
    code, out, _ = app.call("plan", "app:flow")
    assert code == 0
    assert "layout 1, and nothing changes" in out

    app.write(TOPS, BIDDERS)
    app.feed(20_000)
    code, out, _ = app.call("plan", "app:flow")
    assert code == 0
    assert "= stage counts" in out
    assert "+ tops v1" in out
    assert "begins empty" in out
    assert "+ stage bidders: eager, 2 tasks" in out
    app.start("run", "app:flow", "--workers", "2")
    deadline = time.monotonic() + PATIENCE_S
    while f"{app.prefix}tops" not in Topics(Cluster(app.brokers)).names() or not app.records(f"{app.prefix}tops"):
        assert time.monotonic() < deadline
    app.kill()
    app.run_to_the_end()
    late = range(1_000, 21_000)
    assert app.table("counts", "n") == counted(range(21_000), 7)
    assert app.table("bidders", "n") == counted(late, 11)
    assert set(app.table("tops", "top")) == set(range(7))

    code, _, err = app.call("plan", "app:flow", "--drop", "tops")
    assert code == 0, err
    assert "--drop tops: this flow loses no state" in err
    app.write(BIDDERS)  # the operator is gone, and the old flow, without the stage, is refused too
    code, out, err = app.call("run", "app:flow", "--until", "end")
    assert code == 7
    assert "− tops v1" in err
    assert "falkirk plan APP:FLOW --apply --drop tops" in err
    assert app.call("plan", "app:flow")[0] == 7
    code, _, err = app.call("plan", "app:flow", "--apply", "--drop", "tops")
    assert code == 0
    assert "recorded: layout 3" in err
    assert "--drop" not in err
    before = len(app.records(f"{app.prefix}tops"))
    app.feed(1_000)
    app.run_to_the_end()
    assert app.table("counts", "n") == counted(range(22_000), 7)
    assert app.table("bidders", "n") == counted(range(1_000, 22_000), 11)
    assert len(app.records(f"{app.prefix}tops")) == before
    app.write()
    assert app.call("run", "app:flow", "--until", "end")[0] == 7

    layouts = {task: [s.layout for s in steps] for task, steps in app.steps().items()}
    assert all(found == sorted(found) for found in layouts.values())
    assert set(layouts) == {"counts/0", "counts/1", "bidders/0", "bidders/1"}
    makers = {maker(mark) for _, _, mark in app.records(f"{app.prefix}tops")}
    old = {(task, s.step) for task, steps in app.steps().items() for s in steps if s.layout == 1}
    assert not {(m.task, m.step) for m in makers if m is not None} & old


@pytest.mark.slow
def test_state_goes_on_in_another_schema_under_load_while_the_app_is_killed(app: App) -> None:
    auctions = 4_000
    app.write()
    app.feed(2 * auctions, auctions)
    app.run_to_the_end()
    app.write(begin=MIGRATED)
    app.feed(auctions, auctions)
    code, out, _ = app.call("plan", "app:flow")
    assert code == 0
    assert "→ counts v1: auction Int64 → n = len [rows Int64]; top = max of Int64 [best Int64]" in out
    assert "from v1: auction Int64 → n = len [rows Int64] (placed" in out

    before = {task: found[-1].step for task, found in app.steps().items()}
    app.start("run", "app:flow", "--workers", "2")
    deadline = time.monotonic() + PATIENCE_S
    while all(step.layout == 1 for steps in app.steps().values() for step in steps):
        assert time.monotonic() < deadline
    app.kill()  # while there is something left to move
    app.run_to_the_end()

    assert app.table("counts", "n") == dict.fromkeys(range(auctions), 3)
    first: dict[str, int] = {}
    for _, value, mark in app.records(f"{app.prefix}counts"):
        made = maker(mark)
        assert made is not None
        assert value is not None
        later = made.step > before[made.task]
        assert json.loads(value).get("top") == (200 if later else None)
        if later:
            first[made.task] = min(made.step, first.get(made.task, made.step))
    assert all(first[task] - before[task] > auctions / 3 / 300 for task in ("counts/0", "counts/1"))
    code, out, err = app.call("state", "get", "app:flow", "counts", "17", "--state-dir", str(app.folder), "--json")
    assert code == 0, err
    assert json.loads(out)["value"] == {"n": {"rows": 3}, "top": {"best": 200}}


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["EagerCheckpoint", "LazyCheckpoint"])
def test_state_is_rebuilt_under_load_while_the_app_is_killed(app: App, regime: str) -> None:
    """Twice: for a filter that was wrong, and for a column that is new."""
    auctions, least = 500, {1: 4, 2: 2, 3: 6}
    run = ["run", "app:flow", "--workers", "2", "--keep-steps", "1h"]

    def write(layout: int, version: int, more: str = "") -> None:
        begin = REBUILT.replace("LEAST", str(least[layout])).replace("VERSION", str(version))
        app.write(begin=begin.replace("MORE", more).replace("REGIME", regime))

    write(1, 1)
    app.feed(8_000, auctions)
    assert app.call(*run, "--until", "end")[0] == 0
    changes = [(2, 2, "", "v2"), (3, 2, ", top=fk.max('bidder')", "top = max")]
    for layout, version, more, sign in changes if regime == "EagerCheckpoint" else changes[:1]:
        write(layout, version, more)
        code, out, err = app.call("plan", "app:flow", "--rebuild", "counts")
        assert code == 0, err
        assert "↻ counts v2" in out
        assert sign in out
        app.feed(1_000, auctions)
        running = app.start(*run, "--rebuild", "counts")
        for start in (0, 1_000):
            wait_for_move(app, layout, lambda move, start=start: move.again and move.again[0].start >= start)
            app.feed(500, auctions)
            kill_one(running)
        wait_for_move(app, layout, lambda move: not move.again)
        app.kill()
        app.feed(500, auctions)
        code, _, err = app.call(*run, "--until", "end", "--rebuild", "counts")
        assert code == 0, err
    check_each_record(app, least, layout)
    code, out, _ = app.call("plan", "app:flow", "--rebuild", "counts")
    assert code == 0
    assert "as it was" in out


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_state_is_rebuilt_beside_the_version_that_runs_and_taken_over_at_the_switch(app: App) -> None:
    auctions, least = 500, {1: 4, 2: 2}
    run, beside = (
        ["--workers", "2", "--keep-steps", "1h"],
        # Longer than it sleeps, on any machine: without members, it would be taken for one that has ended.
        ["--workers", "2", "--state-dir", "beside", "--session-timeout", "3m"],
    )

    def write(file: str, layout: int, *more: str) -> None:
        begin = REBUILT.replace("LEAST", str(least[layout])).replace("VERSION", str(layout))
        app.write(*more, begin=begin.replace("MORE", "").replace("REGIME", "EagerCheckpoint"), file=file)

    def said() -> int:
        return len(app.records(f"{app.prefix}counts"))

    write("app.py", 1)
    app.feed(8_000, auctions)
    old = app.start("run", "app:flow", *run)
    try:
        wait_until(lambda: consumed(app.steps()) == 8_000)
        write("new.py", 2, SLOWLY)
        needs = ["topics", "new:flow", "--rebuild", "counts"]
        _, out, _ = app.call(*needs, "--acls", "--user", "shop")
        assert {f"{app.name}.rebuild", f"falkirk.{app.name}.rebuild.steps"} <= set(out.split())
        code, _, err = app.call(*needs, "--create")
        assert (code, err.count(f"created topic falkirk.{app.name}.rebuild.")) == (0, 3), err
        shadow = app.start("rebuild", "new:flow", "counts", *beside)
        wait_until(lambda: len(app.steps(f"{app.name}.rebuild")) == 2)
        kill_one(shadow)
        app.feed(500, auctions)
        with asleep(shadow):
            code, _, err = app.call("run", "new:flow", "--state-dir", "other", "--rebuild", "counts")
            assert (code, "are still being rebuilt beside the app" in err) == (2, True), err
        code, out, err = ended(shadow)
        assert code == 0, err
        assert "read all that the app had read when this began" in out + err
        before = said()
        with feeding(app, auctions):
            wait_until(lambda: said() > before)  # the running version goes on
            code, _, err = app.call("rebuild", "new:flow", "counts", *beside)
        assert code == 0, err
        made = consumed(app.steps(f"{app.name}.rebuild"))
        assert made >= 8_500
        app.feed(500, auctions)
        wait_until(lambda: consumed(app.steps()) == app.fed)
        left = app.fed - made
        assert " rebuilds beside this one; nothing of it would be taken over" in app.call("plan", "app:flow")[1]
        assert " is taken over" in app.call("plan", "new:flow", "--rebuild", "counts")[1]
    finally:
        kill_all(old)
    write("slow.py", 2, READS_SLOWLY)
    app.start("run", "slow:flow", *run, "--rebuild", "counts")
    wait_for_move(app, 2, lambda move: move.again)
    app.kill()
    code, _, err = app.call("delete", f"{app.name}.rebuild", "--yes", "--state-dir", "beside")
    assert (code, "have not taken over yet" in err) == (2, True), err
    app.feed(500, auctions)
    code, _, err = app.call("run", "new:flow", *run, "--until", "end", "--rebuild", "counts")
    assert code == 0, err
    check_each_record(app, least, 2)
    moves = [step.move for steps in app.steps().values() for step in steps if step.move is not None]
    assert sum(r.end - r.start for move in moves for r in move.again) == left

    code, _, err = app.call("rebuild", "new:flow", "counts", *beside)
    assert (code, "nothing that app" in err) == (2, True), err
    assert f"falkirk delete {app.name}.rebuild" in app.call("plan", "new:flow")[1]
    code, out, err = app.call("delete", f"{app.name}.rebuild", "--yes", "--state-dir", "beside")
    assert code == 0, err
    app.feed(100, auctions)
    code, _, err = app.call("run", "new:flow", *run, "--until", "end", "--rebuild", "counts")
    assert code == 0, err
    check_each_record(app, least, 2)


def wait_until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not there():
        assert time.monotonic() < deadline


def consumed(steps: dict[str, list[StepRecord]]) -> int:
    """Offsets of the source that are behind the last steps."""
    return sum(r.end for found in steps.values() for r in found[-1].division)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def wait_for_move(app: App, layout: int, there: Callable[[Move], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not any(s.layout == layout and s.move and there(s.move) for steps in app.steps().values() for s in steps):
        assert app.process is not None
        assert app.process.poll() is None, app.process.communicate()
        assert time.monotonic() < deadline


@contextmanager
def feeding(app: App, auctions: int) -> Iterator[None]:
    """Records come all the while, half as many a second as two slow shadows read: each second of a slow start adds work."""
    stop = threading.Event()

    def feed() -> None:
        while not stop.wait(0.1):
            app.feed(5, auctions)

    thread = threading.Thread(target=feed)
    thread.start()
    yield
    stop.set()
    thread.join()


def check_each_record(app: App, least: dict[int, int], newest: int) -> None:
    """What is said of an auction is what the code of the record's step makes of all that the task has read by then; and the
    last word on each is that of the newest."""
    steps = {(task, step.step): step for task, found in app.steps().items() for step in found}
    code, now = {}, {"counts/0": 1, "counts/1": 1}
    for (task, number), step in sorted(steps.items()):
        if step.move is not None and not step.move.again:
            now[task] = step.layout
        code[task, number] = now[task]
    assert set(now.values()) == {newest}
    read: dict[str, list[tuple[int, dict[str, int]]]] = {"counts/0": [], "counts/1": []}
    for partition, offset, value in app.source_records():
        read[f"counts/{partition}"].append((offset, json.loads(value)))
    last: dict[int, dict[str, int] | None] = {}
    for key, value, mark in app.records(f"{app.prefix}counts"):
        made = maker(mark)
        assert made is not None
        assert key is not None
        by, auction, end = code[made.task, made.step], int(key), steps[made.task, made.step].division[0].end
        rows = [
            r for offset, r in read[made.task] if offset < end and r["auction"] == auction and r["bidder"] >= least[by]
        ]
        last[auction] = expected = {"auction": auction, "n": len(rows)} if rows else None
        if expected is not None and by == 3:
            expected["top"] = max(r["bidder"] for r in rows)
        assert (None if value is None else json.loads(value)) == expected
    everything = Counter(r["auction"] for rows in read.values() for _, r in rows if r["bidder"] >= least[newest])
    assert {auction: row["n"] for auction, row in last.items() if row is not None} == everything
