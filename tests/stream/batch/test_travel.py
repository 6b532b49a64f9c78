"""A job goes to processes that know nothing of the user's modules."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

from falkirk.connectors.spark.workers import shipped
from falkirk.stream.flow.load import load_flow

HELPERS = """
def doubled(n):
    return 2 * n
"""
FLOW = """
import dataclasses
from datetime import timedelta

import falkirk as fk
from helpers_of_a_flow import doubled

@dataclasses.dataclass
class Bid:
    auction: int
    price: int

class Most(fk.Aggregate):
    state = {"most": int}
    returns = int

    def add(self, state, values):
        return {"most": max([*values, *([] if state is None else [state["most"]])])}

    def result(self, state):
        return doubled(state["most"])

class Seen(fk.Process):
    tables = {"seen": {"n": int}}
    returns = {"auction": int, "n": int}

    def on_row(self, row, key):
        n = (key.get("seen") or {"n": 0})["n"] + 1
        key.put({"n": n}, "seen")
        key.set_timer(timedelta(days=1))
        yield {"auction": row["auction"], "n": n}

factor = 10

class Factors:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def __call__(self, row):
        return {"factor": factor}

flow = fk.Flow("f", regime=fk.Batch())
bids = flow.source("bids", key=fk.Key("auction", fk.Int64BE), value=fk.Json(Bid), metadata=["timestamp"])
priced = bids.enrich(Factors, returns={"factor": int})
scaled = priced.map(lambda row: {**row, "price": row["price"] * row["factor"]}).filter(fk.col("price") > 0)
scaled.group_by("auction", id="g").agg(most=Most("price"), n=fk.len()).sink("most", key="auction", value=fk.Json())
scaled.key_by("auction").process(Seen(), id="p").sink("seen", value=fk.Json)
"""
THERE = """
import pickle, sys
from falkirk.stream.batch import Piece
from falkirk.stream.dataflow.records import Records

job = pickle.loads(sys.stdin.buffer.read())
assert not {"a_flow", "helpers_of_a_flow"} & sys.modules.keys()
key = (7).to_bytes(8, "big")
records = Records([0, 1], [key, key], [b'{"auction":7,"price":1}', b'{"auction":7,"price":3}'], [5, 6])
frames = list(job.head(Piece(0, "bids", 0, 0, 2), iter([records])))
frames = list(job.level(1, iter(frames)))
print(sorted(value.decode() for frame in frames for value in frame["value"]))
"""


def test_a_job_of_a_users_file_runs_where_the_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "helpers_of_a_flow.py").write_text(HELPERS)
    (tmp_path / "a_flow.py").write_text(FLOW)
    try:
        stage = load_flow(f"{tmp_path / 'a_flow.py'}:flow").plan().batches[0]
        job = stage.job(clock=0, records=2, result_partitions=1, dead_letters_from={("bids", 0): 5})
        assert job.levels == 1  # what it has made for itself by now stays here
        data = shipped(job)
    finally:
        sys.path.remove(str(tmp_path))
        for name in ("a_flow", "helpers_of_a_flow"):
            del sys.modules[name]
    assert len(data) < 50_000
    done = subprocess.run([sys.executable, "-c", THERE], input=data, capture_output=True, cwd="/", check=False)
    assert done.stdout.decode().strip() == str(
        ['{"auction":7,"most":60,"n":2}', '{"auction":7,"n":1}', '{"auction":7,"n":2}']
    ), done.stderr.decode()


def test_a_job_is_the_same_after_the_journey(tmp_path: Path) -> None:
    (tmp_path / "b_flow.py").write_text(FLOW.replace("from helpers_of_a_flow import doubled", "doubled = int"))
    try:
        stage = load_flow(f"{tmp_path / 'b_flow.py'}:flow").plan().batches[0]
        job = pickle.loads(
            shipped(stage.job(clock=3, records=10_001, result_partitions=2, dead_letters_from={("bids", 0): 5}))
        )
    finally:
        sys.path.remove(str(tmp_path))
        del sys.modules["b_flow"]
    assert (job.clock, job.buckets, job.result_partitions, job.dead_letters_from) == (3, 2, 2, {("bids", 0): 5})
    assert [o.id for o in job.operators] == [o.id for o in stage.operators]
