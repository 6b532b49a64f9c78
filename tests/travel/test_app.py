"""The app with all four regimes, in this process: what it answers, which part has which regime, and its client."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import polars as pl
import pytest
from tests.travel.oracle import (
    FLOW,
    Pair,
    Usual,
    airports,
    allowed,
    answer,
    client,
    compare,
    flights,
    legs,
    routes,
    usual,
)

import falkirk as fk
from falkirk.stream.flow.load import load_flow
from falkirk.stream.stages.stage import PhysicalStage


def some(count: int) -> pl.DataFrame:
    """The first flights, and the one on a route of which all flights were cancelled."""
    never = flights().filter((pl.col("origin") == "EWR") & (pl.col("dest") == "LGA"))
    return pl.concat([flights().head(count), never])


def questions(pairs: list[Pair]) -> list[dict[str, str]]:
    return [{"request": f"{origin}-{dest}", "origin": origin, "dest": dest} for origin, dest in pairs]


def answers(app: fk.testing.App) -> list[dict[str, Any]]:
    """All that was answered, each row with the name of its request."""
    found = app.sinks["ask.answers"].records
    return [{"request": r.key, **row} for r in found for row in r.value["rows"] or ()]


@pytest.mark.parametrize(("step_rows", "partitions"), [(None, 1), (60, 3)])
def test_every_question_has_the_answer_of_a_search_and_of_polars(step_rows: int | None, partitions: int) -> None:
    frame = some(120)
    app = fk.testing.App(load_flow(FLOW), step_rows=step_rows, partitions=partitions)
    app.send("flights", frame)
    app.run()
    names = [*airports(frame), "XXX"]
    pairs = [(origin, dest) for origin in names for dest in names]
    app.send("ask", questions(pairs))
    app.run()

    known, near = usual(frame), legs(routes(frame))
    wanted = [{"request": f"{pair[0]}-{pair[1]}", **answer(pair, known, near)} for pair in pairs]
    found = {row["request"]: row for row in answers(app)}
    assert len(found) == len(answers(app))
    assert found == {row["request"]: row for row in wanted}
    assert found["EWR-LGA"] == {
        "request": "EWR-LGA", "origin": "EWR", "dest": "LGA", "flights": 1, "delay": None, "legs": 2
    }  # fmt: skip
    assert {row["legs"] for row in wanted} == {None, 1, 2, 3}

    assert sorted(row["request"] for row in app.sinks["answers"].rows) == sorted(found)
    assert all(row == found[row["request"]] for row in app.sinks["answers"].rows)
    unknown = Counter(row["origin"] for row in wanted if row["legs"] is None)
    assert app.sinks["asked"].table == {
        name: {"origin": name, "questions": len(names), "unknown": unknown[name]} for name in names
    }


def test_an_airport_is_near_as_soon_as_the_flights_say_so() -> None:
    app = fk.testing.App(load_flow(FLOW))
    told = []
    for dest in ("ORD", "LAX"):
        app.send("flights", [{"carrier": "UA", "origin": "JFK", "dest": dest, "delay": 6}])
        app.run()
        app.send("ask", [{"request": f"at {dest}", "origin": "ORD", "dest": "LAX"}])
        app.run()
        told.append(answers(app)[-1]["legs"])
    assert told == [None, 2]


def test_answers_are_given_once_whatever_is_killed() -> None:
    frame, pairs = flights().head(8), [("EWR", "IAH"), ("IAH", "MIA"), ("IAH", "XXX")]
    asked = [*questions(pairs), *questions(pairs[:1])]
    inputs = {"flights": frame, "ask": asked}
    app = fk.testing.run(load_flow(FLOW), inputs, step_rows=8, crash_at=[1, 2])
    assert sorted(row["request"] for row in answers(app)) == sorted(f"{o}-{d}" for o, d in pairs)
    assert sorted(row["request"] for row in app.sinks["answers"].rows) == sorted(f"{o}-{d}" for o, d in pairs)


def test_each_part_has_its_regime() -> None:
    plan = load_flow(FLOW).plan()
    regimes = {stage.id: stage.regime.kind for stage in plan.stages if isinstance(stage, PhysicalStage)}
    assert regimes == {
        "flown": "lazy", "ways": "lazy", "near": "lazy", "ask.once": "eager", "found": "eager", "asked": "eager",
    }  # fmt: skip
    assert [part.id for part in plan.batches] == ["usual"]


ROW = {"origin": "ALB", "dest": "BUR", "flights": None, "delay": None, "legs": 3}


@contextmanager
def gateway(*replies: tuple[int, Any] | None) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """An address that gives these replies, and what it was asked: keys and bodies. None: it breaks the connection."""
    left, asked = list(replies), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append((self.headers["Idempotency-Key"], self.rfile.read(int(self.headers["Content-Length"]))))
            if (reply := left.pop(0)) is not None:
                self.send_response(reply[0])
                self.end_headers()
                self.wfile.write(json.dumps(reply[1]).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_the_client_asks_again_with_the_same_key_until_it_is_answered() -> None:
    with gateway((503, {"error": "it recovers"}), None, (504, {"error": "later"}), (200, [ROW])) as (address, asked):
        assert client.ask(address, "ALB", "BUR") == ROW
    assert len(asked) == 4
    assert len(set(asked)) == 1
    assert json.loads(asked[0][1]) == {"origin": "ALB", "dest": "BUR"}


def test_the_client_gives_up_what_is_no_question_and_what_takes_too_long() -> None:
    with gateway((400, {"error": "no such column"}), (503, {"error": "it recovers"})) as (address, asked):
        with pytest.raises(client.Unanswered, match="no such column"):
            client.ask(address, "ALB", "BUR")
        with pytest.raises(client.Unanswered, match="it recovers"):
            client.ask(address, "ALB", "BUR", patience=0.0)
    assert asked[0][0] != asked[1][0]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "ALB to BUR: 2 changes, by the routes flown so far. No direct flight is known."),
        ({"legs": None}, "ALB to BUR: not with 2 changes, by the routes flown so far. No direct flight is known."),
        (
            {"legs": 1, "flights": 1200, "delay": -1.26},
            "ALB to BUR: direct, by the routes flown so far. Direct flights: 1,200, delayed by -1.3 minutes on the mean.",
        ),
        (
            {"legs": 2, "flights": 1},
            "ALB to BUR: 1 change, by the routes flown so far. All direct flights were cancelled: 1.",
        ),
    ],
)
def test_the_client_says_it_in_words(changed: dict[str, Any], words: str) -> None:
    assert client.sentence({**ROW, **changed}) == words


NEAR = {("ALB", "EWR"): 1, ("ALB", "ORD"): 2}
KNOWN = {("ALB", "EWR"): Usual(4, 2.5)}
TOLD = {
    "a": answer(("ALB", "EWR"), KNOWN, NEAR),
    "b": answer(("ALB", "ORD"), {}, NEAR),
    "c": answer(("BUR", "ORD"), {}, {}),
}
ROWS = [(key, *found.values()) for key, found in TOLD.items()]
ASKED = [("ALB", 2, 0), ("BUR", 1, 1)]


def test_tables_that_say_what_was_told_are_exact() -> None:
    compare(ROWS[::-1], ASKED[::-1], TOLD)


@pytest.mark.parametrize(
    ("rows", "asked"),
    [
        (ROWS[1:], ASKED),
        ([*ROWS, ROWS[0]], ASKED),
        ([*ROWS, ("d", *ROWS[0][1:])], ASKED),
        ([(*ROWS[0][:-1], 2), *ROWS[1:]], ASKED),
        (ROWS, ASKED[1:]),
        (ROWS, [("ALB", 3, 0), ASKED[1]]),
        (ROWS, [ASKED[0], ("BUR", 1, 0)]),
    ],
    ids=["lost", "doubled", "never asked", "another answer", "not counted", "counted twice", "counted as known"],
)
def test_a_fault_in_the_tables_is_found(rows: list[Any], asked: list[Any]) -> None:
    with pytest.raises(AssertionError):
        compare(rows, asked, TOLD)


@pytest.mark.parametrize(
    ("changed", "right"),
    [
        ({}, True),
        ({"flights": None, "delay": None, "legs": None}, True),
        ({"legs": 3}, True),
        ({"legs": 4}, False),
        ({"flights": 5}, False),
        ({"delay": None}, False),
        ({"dest": "BUR", "flights": None, "delay": None}, False),
    ],
)
def test_an_answer_that_no_flights_give_is_found(changed: dict[str, Any], right: bool) -> None:
    assert allowed({**TOLD["a"], **changed}, [{}, KNOWN], NEAR) == right
