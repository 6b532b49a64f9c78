"""The examples as a user would test them: in this process, with the worker killed at every step."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import falkirk as fk
from falkirk.stream.flow.load import load_flow

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_words_are_counted_through_crashes() -> None:
    lines = ["To be, or not to be:", "that is the question:", "Whether 'tis nobler"]
    flow = load_flow(f"{EXAMPLES / 'word_count.py'}:flow")
    result = fk.testing.run(flow, {"lines": [(None, line) for line in lines]}, crash_at="everywhere", partitions=2)
    words = Counter(" ".join(lines).lower().replace(",", "").replace(":", "").replace("'", "").split())
    assert {word: row["count"] for word, row in result.sinks["word-counts"].table.items()} == words


def test_the_alarm_is_raised_although_the_worker_died() -> None:
    app = fk.testing.App(load_flow(f"{EXAMPLES / 'door_alarm.py'}:flow"), partitions=2)
    app.send("doors", [{"door": "cellar", "open": True}, {"door": "attic", "open": True}])
    app.run()
    app.crash(host=True)
    app.advance("3s")
    app.run()
    app.send("doors", [{"door": "attic", "open": False}])
    app.run()
    events = [(row["door"], row["event"]) for row in app.sinks["door-alarms"].rows]
    assert sorted(events[:2]) == [("attic", "left open"), ("cellar", "left open")]
    assert events[2:] == [("attic", "shut again")]
