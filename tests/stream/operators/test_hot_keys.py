"""A key that has most of an operator's rows is named."""

from __future__ import annotations

import falkirk as fk
from falkirk.stream.circuit.circuit import StageCircuit
from falkirk.stream.dataflow.hot_keys import LEAST, PAUSE, STALE, HotKeys
from falkirk.stream.dataflow.task_counts import HotKey
from falkirk.testing.memory import MemoryApp


def run(keys: list[int], group: str = "k") -> dict[str, HotKey]:
    """What one step of these rows finds."""
    flow = fk.Flow("f")
    bids = flow.source("bids", value=fk.Json({"k": int, "j": int}))
    bids.group_by(group, id="stats").agg(n=fk.len()).sink("out", key=group, value=fk.Json())
    app = MemoryApp(flow, tasks=1)
    for k in keys:
        app.append("bids", None, b'{"k":%d,"j":%d}' % (k, k % 2))
    app.run()
    (circuit,) = [c for (stage, _), c in app.circuits.items() if stage == "stats"]
    assert isinstance(circuit, StageCircuit)
    return dict(circuit.hot_keys())


def test_a_key_that_has_most_of_a_step_is_named_with_its_share() -> None:
    found = run([7] * 3 * LEAST + list(range(LEAST)))
    assert set(found) == {"stats"}
    assert found["stats"].key == "k=7"
    assert 0.65 < found["stats"].share < 0.85


def test_keys_of_about_the_same_number_and_few_rows_are_not_named() -> None:
    assert run([i % 5 for i in range(5 * LEAST)]) == {}
    assert run([7] * (LEAST - 1)) == {}


def test_a_key_that_is_no_longer_hot_is_forgotten_at_the_next_look_or_when_the_stream_is_quiet() -> None:
    import polars as pl

    now = [0.0]
    keys = HotKeys(lambda: now[0])
    hot = pl.DataFrame({"k": [7] * LEAST})
    keys.look("stats", ["k"], hot)
    assert keys.found() == {"stats": HotKey("k=7", 1.0)}
    now[0] += PAUSE / 2  # it is not looked at yet
    keys.look("stats", ["k"], pl.DataFrame({"k": range(LEAST)}))
    assert keys.found()
    now[0] += PAUSE
    keys.look("stats", ["k"], pl.DataFrame({"k": range(LEAST)}))
    assert not keys.found()
    now[0] += PAUSE
    keys.look("stats", ["k"], hot)
    now[0] += STALE + 1
    assert not keys.found()


def test_null_is_a_key_and_a_long_key_is_cut() -> None:
    import polars as pl

    keys = HotKeys()
    keys.look("a", ["k", "j"], pl.DataFrame({"k": [None] * LEAST, "j": ["x" * 500] * LEAST}))
    key = keys.found()["a"].key
    assert key.startswith("k=None, j=xxx")
    assert len(key) == 200
