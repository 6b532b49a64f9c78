"""What the demo compares with can be trusted: each fault that it looks for is put in, and found."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def check() -> Any:
    spec = importlib.util.spec_from_file_location("flights_check", EXAMPLES / "flights" / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(EXAMPLES / "flights"))  # it imports what lies beside it, as scripts do
    spec.loader.exec_module(module)
    return module


FLIGHTS = pl.DataFrame(
    {
        "id": range(8),
        "carrier": ["UA", "UA", "DL", "UA", "DL", "UA", "DL", "DL"],
        "origin": ["JFK"] * 8,
        "dest": ["ORD", "LAX", "ORD", "ORD", "LAX", "LAX", "ORD", "LAX"],
        "delay": [130, None, 200, 3, 20, 150, -4, 125],
        "at": [86_400_000 + hour * 3_600_000 for hour in range(8)],
    }
)


USUAL = {"ORD": 329 / 4, "LAX": 295 / 3}
EPOCHS = [dict.fromkeys(range(4), 8)]
"""One, that read all that is in each partition."""


def faultless(check: Any) -> dict[str, list[Any]]:
    """What an exact app might have written: a step for each flight, and one partition of each output."""
    outputs: dict[str, list[Any]] = {topic: [] for topic in check.OUTPUTS}
    running = {key: check.running(FLIGHTS, key).rows(named=True) for key in ("carrier", "dest")}
    for step, flight in enumerate(FLIGHTS.rows(named=True)):
        origin = f"by-carrier/0 {step} 0"
        if (flight["delay"] or 0) >= 120:
            # An epoch of all flights was complete, and seen, before the sixth.
            usual = None if step < 5 else USUAL[flight["dest"]]
            known = {c: v for c, v in flight.items() if c != "at"}
            outputs["very-late"].append(check.Record(0, {**known, "usual": usual}, origin))
        outputs["delays-by-carrier"].append(check.Record(0, running["carrier"][step], origin))
        outputs["delays-by-airport"].append(check.Record(0, running["dest"][step], f"by-airport/0 {step} 0"))
    # The fourth flight leaves on time, three hours after the first and one hour after the third, for the same airport.
    day = {"dest": "ORD", "window_start": 86_400_000, "window_end": 172_800_000}
    choices = [check.Record(0, {**day, "choices": n}, f"instead/0 {n} 0") for n in (1, 2)]
    outputs["choices-by-day"] = choices
    routes = {(row["origin"], row["dest"]): row for row in routes_of(check)}
    outputs["usual-delays"] = [check.Record(0, row, "0") for row in routes.values()]
    return outputs


def routes_of(check: Any) -> list[dict[str, Any]]:
    """Every flight is from one airport here, so a route is a destination."""
    last = check.running(FLIGHTS, "dest").group_by("dest").last()
    return [{"origin": "JFK", **row} for row in last.rows(named=True)]


def findings(check: Any, outputs: dict[str, list[Any]]) -> dict[str, Any]:
    return {finding.output: finding for finding in check.compare(FLIGHTS, outputs, EPOCHS)}


def test_what_is_kept_of_the_first_flights_of_a_carrier(check: Any) -> None:
    rows = check.running(FLIGHTS, "carrier").filter(pl.col("carrier") == "UA").rows()
    assert rows == [
        ("UA", 1, 1, 130, 130.0),
        ("UA", 2, 1, 130, 130.0),
        ("UA", 3, 1, 130, 66.5),
        ("UA", 4, 2, 150, 283 / 3),
    ]


def test_faultless_outputs_are_exact(check: Any) -> None:
    assert all(finding.exact for finding in findings(check, faultless(check)).values())


def test_an_empty_output_is_not_exact(check: Any) -> None:
    found = findings(check, {**faultless(check), "delays-by-airport": []})
    assert not found["delays-by-airport"].exact
    assert found["delays-by-airport"].lost == 8


Fault = Callable[[list[Any]], list[Any]]


@pytest.mark.parametrize(
    ("output", "fault", "column"),
    [
        ("very-late", lambda r: r[:-1], "lost"),
        ("very-late", lambda r: [*r, r[-1]], "doubled"),
        ("very-late", lambda r: [r[2], r[1], r[0], *r[3:]], "disordered"),
        ("very-late", lambda r: [r[0]._replace(value={**r[0].value, "delay": 121}), *r[1:]], "wrong"),
        ("very-late", lambda r: [*r[:-1], r[-1]._replace(value={**r[-1].value, "usual": 1.0})], "wrong"),
        ("very-late", lambda r: [*r[:-1], r[-1]._replace(value={**r[-1].value, "usual": None})], "wrong"),
        ("delays-by-carrier", lambda r: r[:-1], "lost"),
        ("delays-by-carrier", lambda r: [*r, r[-1]], "disordered"),
        ("delays-by-carrier", lambda r: [*r, r[-1]._replace(value={**r[-1].value, "flights": 5})], "doubled"),
        ("delays-by-carrier", lambda r: [r[0]._replace(value={**r[0].value, "worst": 131}), *r[1:]], "wrong"),
        ("delays-by-carrier", lambda r: [r[1], r[0], *r[2:]], "disordered"),
        ("delays-by-airport", lambda r: r[:-1], "lost"),
        ("delays-by-airport", lambda r: [*r[:-1], r[-1]._replace(value={**r[-1].value, "mean": 0.5})], "wrong"),
        ("delays-by-airport", lambda r: [*r, r[-1]._replace(value={**r[-1].value, "flights": 5})], "doubled"),
        ("delays-by-airport", lambda r: [r[1], r[0], *r[2:]], "disordered"),
        ("choices-by-day", lambda r: r[:-1], "lost"),
        ("choices-by-day", lambda r: [], "lost"),
        ("choices-by-day", lambda r: [r[1], r[0]], "disordered"),
        ("choices-by-day", lambda r: [*r, r[-1]._replace(value={**r[-1].value, "choices": 3})], "doubled"),
        ("choices-by-day", lambda r: [*r, r[-1]._replace(value={**r[-1].value, "dest": "LAX"})], "wrong"),
        ("choices-by-day", lambda r: [r[0], r[1]._replace(value={**r[1].value, "window_end": 9})], "wrong"),
        ("usual-delays", lambda r: r[:-1], "lost"),
        ("usual-delays", lambda r: [*r, r[-1]], "doubled"),
        ("usual-delays", lambda r: [r[0]._replace(value={**r[0].value, "mean": 0.5}), *r[1:]], "wrong"),
        ("usual-delays", lambda r: [r[0]._replace(origin="1"), *r[1:]], "lost"),
    ],
)
def test_a_fault_is_found(check: Any, output: str, fault: Fault, column: str) -> None:
    outputs = faultless(check)
    outputs[output] = fault(outputs[output])
    found = findings(check, outputs)
    assert getattr(found[output], column) > 0
    assert not found[output].exact
    assert all(finding.exact for finding in found.values() if finding.output != output)


def test_a_gap_and_a_repeat_within_a_step_are_out_of_place(check: Any) -> None:
    def misplaced(*origins: str) -> int:
        return int(check.misplaced([check.Record(0, {}, origin) for origin in origins]))

    assert misplaced("t/0 0 0", "t/0 0 1", "t/0 3 0", "t/1 2 0") == 0
    assert misplaced("t/0 0 0", "t/0 0 2") == 1
    assert misplaced("t/0 0 0", "t/0 0 0") == 1
    assert misplaced("t/0 1 0", "t/0 0 0") == 1
    assert misplaced("t/0 0 1") == 1
