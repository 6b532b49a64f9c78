"""Keys, tasks and workers: who answers a question, and with what."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.runtime.query.stand import CARRIERS, PARTITIONS, Workers, answer, flights, flow

from falkirk.runtime.query import router as routing
from falkirk.state.shards import crc32, crc32_partition


def rows() -> list[tuple[str, str, str, int]]:
    """Every carrier flies some routes."""
    chance = random.Random(5)
    return [(carrier, chance.choice("ABC"), chance.choice("XYZ"), chance.randrange(100)) for carrier in CARRIERS * 8]


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    """Three workers that share the tasks, and have committed one step."""
    made = Workers(tmp_path, flow(), 3)
    flights(made.memory, rows())
    made.commit()
    yield made
    made.close()


def due(by: str) -> dict[Any, list[int]]:
    """The delays of each carrier, or route."""
    found: dict[Any, list[int]] = {}
    for carrier, origin, dest, delay in rows():
        found.setdefault(carrier if by == "carrier" else (origin, dest), []).append(delay)
    return found


@pytest.mark.parametrize("asked", range(3))
def test_any_worker_answers_for_a_key_with_the_result_task_and_step(workers: Workers, asked: int) -> None:
    for carrier, delays in due("carrier").items():
        status, body = answer(workers.routers[asked], f"/state/carriers/{carrier}")
        assert status == 200
        assert body["key"] == {"carrier": carrier}
        assert body["row"] == {"n": len(delays), "usual": pytest.approx(sum(delays) / len(delays))}
        assert body["operator"] == "carriers"
        assert (body["step"], body["time"]) == (0, 1000)
    assert {task for _, task in workers.asked} <= {f"carriers/{n}" for n in range(PARTITIONS)}


@pytest.mark.parametrize(
    "target",
    [
        '/state/routes/["{0}","{1}"]',
        "/state/routes/%5B%22{0}%22%2C%22{1}%22%5D",
        "/state/routes?origin={0}&dest={1}",
        "/state/routes?dest={1}&origin={0}",
        "/state/routes?dest={1}&origin={0}&table=groups",
    ],
)
def test_a_key_of_two_columns_is_a_json_array_or_has_them_as_parameters(workers: Workers, target: str) -> None:
    if target.endswith("groups"):
        target = target.replace("groups", workers.memory.plan.stages[1].operators[0].main_table)  # type: ignore[attr-defined]
    for (origin, dest), delays in due("route").items():
        workers.asked.clear()
        status, body = answer(workers.routers[0], target.format(origin, dest))
        assert (status, body["key"], body["row"]) == (200, {"origin": origin, "dest": dest}, {"n": len(delays)})
        assert len(workers.asked) <= 1, "behind an exchange, the task of a key is known"


def test_a_key_without_state_is_404_as_of_the_step_of_its_one_task(workers: Workers) -> None:
    for path, key in (("carriers/ZZ", {"carrier": "ZZ"}), ('routes/["A","Q"]', {"origin": "A", "dest": "Q"})):
        status, body = answer(workers.routers[0], f"/state/{path}")
        assert (status, body["row"], body["key"]) == (404, None, key)
        assert (body["step"], body["time"]) == (0, 1000)
        assert body["task"].startswith(path.split("/")[0])


def test_only_what_is_committed_is_visible(workers: Workers) -> None:
    before = answer(workers.routers[0], "/state/carriers/UA")
    flights(workers.memory, [("UA", "A", "X", 7), ("NW", "A", "X", 7)])
    assert answer(workers.routers[0], "/state/carriers/UA") == before
    assert answer(workers.routers[0], "/state/carriers/NW")[0] == 404
    workers.commit()
    status, body = answer(workers.routers[0], "/state/carriers/UA")
    assert (status, body["step"], body["row"]["n"]) == (200, 1, before[1]["row"]["n"] + 1)
    assert answer(workers.routers[0], "/state/carriers/NW")[1]["row"]["n"] == 1


def test_keys_that_librdkafka_s_partitioner_has_placed_are_found_too(tmp_path: Path) -> None:
    made = Workers(tmp_path, flow(), 2)
    for carrier, origin, dest, delay in rows():
        flight = {"carrier": carrier, "origin": origin, "dest": dest, "delay": delay}
        place = int(crc32_partition(crc32([carrier.encode()]), PARTITIONS)[0])
        made.memory.append("flights", carrier.encode(), json.dumps(flight).encode(), partition=place)
    made.memory.run()
    made.commit()
    for carrier, delays in due("carrier").items():
        status, body = answer(made.routers[0], f"/state/carriers/{carrier}")
        assert (status, body["row"]["n"]) == (200, len(delays))
    for missing in ("ZZ", "YY", "XX", "WW"):
        status, body = answer(made.routers[0], f"/state/carriers/{missing}")
        place = int(crc32_partition(crc32([missing.encode()]), PARTITIONS)[0])
        assert (status, body["task"]) == (404, f"carriers/{place}")
    made.close()


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("/", 404, "no such page"),
        ("/state/carriers/UA/x", 404, "no such page"),
        ("/state/carrier/UA", 404, "did you mean 'carriers'?"),
        ("/state/carriers?carriar=UA", 400, "did you mean 'carrier'?"),
        ("/state/carriers/UA?carrier=UA", 400, "in the path and by its columns"),
        ("/state/carriers?carrier=UA&carrier=AA", 400, "'carrier' is given twice"),
        ("/state/routes/JFK", 400, "not a JSON array"),
        pytest.param("/state/routes/" + "[" * 60_000, 400, "not a JSON array", id="deep"),
        ('/state/routes/["A"]', 400, "a key of this state has 2 columns, and 1 given"),
        ("/state/routes?dest=X", 400, "only the first columns"),
        ("/state/carriers?limit=0", 400, "limit='0' is not a number from 1 to 1,000"),
        ("/state/carriers?limit=1001", 400, "is not a number from 1 to 1,000"),
        ("/state/carriers?after=%21", 400, "is not the `next` of an answer"),
        ("/state/carriers?after=%C3%A9", 400, "is not the `next` of an answer"),
        ("/state/carriers?task=4", 404, "has 4 tasks"),
        ("/state/carriers/UA?min-step=x", 400, "min-step='x'"),
        ("/state/carriers/UA?table=seen", 404, "no table 'seen'"),
    ],
)
def test_what_cannot_be_answered_says_why(workers: Workers, target: str, status: int, words: str) -> None:
    found, body = answer(workers.routers[0], target)
    assert found == status
    assert words in f"{body['error']} {body.get('hint', '')}"


def test_a_value_of_another_type_is_refused_with_the_columns(tmp_path: Path) -> None:
    import falkirk as fk

    made = fk.Flow("flights")
    read = made.source("flights", key="carrier", value=fk.Json({"carrier": str, "day": fk.Date}))
    read.group_by("day", id="days").agg(n=fk.len()).sink("d", key="day", value=fk.Json())
    workers = Workers(tmp_path, made)
    status, body = answer(workers.routers[0], "/state/days/soon")
    assert (status, body["error"], body["where"]) == (400, "'soon' is not a valid Date", "the key's columns: day: Date")
    workers.memory.append("flights", b"UA", b'{"carrier":"UA","day":"2026-11-21"}')
    workers.memory.run()
    workers.commit()
    status, body = answer(workers.routers[0], "/state/days/2026-11-21")
    assert (status, body["key"], body["row"]) == (200, {"day": "2026-11-21"}, {"n": 1})
    workers.close()


def test_a_time_that_python_does_not_have_is_shown(tmp_path: Path) -> None:
    import falkirk as fk

    made = fk.Flow("flights")
    read = made.source("flights", key="carrier", value=fk.Json({"carrier": str, "millis": int}))
    last = read.group_by("carrier", id="last").agg(at=fk.max(fk.col("millis").cast(fk.Datetime)))
    last.select("carrier", year=fk.col("at").dt.year()).sink("l", key="carrier", value=fk.Json())
    workers = Workers(tmp_path, made)
    workers.memory.append("flights", b"UA", b'{"carrier":"UA","millis":253402300800000}')
    workers.memory.run()
    workers.commit()
    status, body = answer(workers.routers[0], "/state/last/UA")
    assert (status, body["row"]) == (200, {"at": "+10000-01-01T00:00:00+00:00"})
    workers.close()


# -- who has it --------------------------------------------------------------------------------------------------------


def place_of(workers: Workers, carrier: str) -> int:
    """The partition of the steps topic of the task that has a carrier."""
    task = answer(workers.routers[0], f"/state/carriers/{carrier}")[1]["task"]
    return [f"{stage.id}/{n}" for stage, n in workers.names].index(task)


def test_a_request_makes_one_hop_even_if_two_workers_take_each_other_for_the_owner(workers: Workers) -> None:
    place = place_of(workers, "UA")
    for some in workers.held:
        some.discard(place)
    workers.asked.clear()
    for front, other in ((0, 1), (1, 0)):
        workers.believed[place] = other
        status, body = answer(workers.routers[front], "/state/carriers/UA")
        assert (status, body["error"].endswith("is not here")) == (421, True)
    stage, number = workers.names[place]
    assert [worker for worker, task in workers.asked if task == f"{stage.id}/{number}"] == ["w1", "w0"]


def test_a_task_that_nobody_runs_or_that_is_being_taken_over_is_503(workers: Workers) -> None:
    place = place_of(workers, "UA")
    workers.coming.add(place)
    assert answer(workers.routers[0], "/state/carriers/UA")[0] == 503
    workers.coming.clear()
    for some in workers.held:
        some.discard(place)
    del workers.believed[place]
    status, body = answer(workers.routers[0], "/state/carriers/UA")
    assert (status, "no worker runs task" in body["error"]) == (503, True)
    others = [c for c in CARRIERS if answer(workers.routers[0], f"/state/carriers/{c}")[0] == 200]
    assert others, "the other tasks answer"


def test_a_task_without_a_step_has_no_answer_yet(tmp_path: Path) -> None:
    made = Workers(tmp_path, flow())
    status, body = answer(made.routers[0], "/state/carriers/UA?task=0")
    assert (status, body["error"]) == (503, "task carriers/0 has committed no step yet")
    made.close()


def test_a_question_waits_for_the_step_that_it_names(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    flights(workers.memory, [("UA", "A", "X", 7)])
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(answer(workers.routers[n], "/state/carriers/UA?min-step=1")))  # type: ignore[misc]
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    workers.commit()
    for thread in threads:
        thread.join()
    assert [(status, body["step"], body["row"]["n"]) for status, body in found] == [(200, 1, 9)] * 3
    monkeypatch.setattr(routing, "WAIT", 0.0)
    status, body = answer(workers.routers[0], "/state/carriers/UA?min-step=2")
    assert (status, body["error"].endswith("has not committed step 2 yet: its last is 1")) == (503, True)


# -- many keys ---------------------------------------------------------------------------------------------------------


def pages(workers: Workers, target: str) -> list[list[dict[str, Any]]]:
    """All pages of an answer, by any worker."""
    found, after, n = [], "", 0
    while True:
        status, body = answer(workers.routers[n % len(workers.routers)], f"{target}{after}")
        assert status == 200
        found.append([row for part in body["tasks"] for row in part["rows"]])
        if body["next"] is None:
            return found
        after, n = f"&after={quote(body['next'])}", n + 1


@pytest.mark.parametrize("limit", [1, 2, 4, 9, 100])
def test_all_keys_come_once_in_pages_of_the_limit(workers: Workers, limit: int) -> None:
    found = pages(workers, f"/state/carriers?limit={limit}")
    assert all(len(page) == limit for page in found[:-1])
    rows = {row["key"]["carrier"]: row["row"]["n"] for page in found for row in page}
    assert sum(map(len, found)) == len(rows)
    assert rows == {carrier: len(delays) for carrier, delays in due("carrier").items()}


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_the_first_columns_of_a_key_choose_all_keys_that_begin_so(workers: Workers, limit: int) -> None:
    for origin in "ABC":
        found = [row for page in pages(workers, f"/state/routes?origin={origin}&limit={limit}") for row in page]
        assert {row["key"]["dest"]: row["row"]["n"] for row in found} == {
            dest: len(delays) for (o, dest), delays in due("route").items() if o == origin
        }
        assert {row["key"]["origin"] for row in found} == {origin}


def test_keys_of_one_task_come_alone(workers: Workers) -> None:
    per_task = [answer(workers.routers[0], f"/state/carriers?task={n}")[1]["tasks"] for n in range(PARTITIONS)]
    assert [[part["task"] for part in parts] for parts in per_task] == [[f"carriers/{n}"] for n in range(PARTITIONS)]
    assert sum(len(part["rows"]) for parts in per_task for part in parts) == len(CARRIERS)


def test_what_there_is_to_ask_is_told(workers: Workers) -> None:
    status, body = answer(workers.routers[0], "/state")
    assert status == 200
    assert [(each["operator"], each["key"]) for each in body["state"]] == [
        ("carriers", {"carrier": "String"}),
        ("routes", {"origin": "String", "dest": "String"}),
    ]
