"""An aggregate of the user's that fails stops the app with the group, and the address of its rows."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
import pytest

import falkirk as fk
from falkirk.errors import UserCodeError
from falkirk.testing.memory import MemoryApp


class Wrong(fk.Aggregate):
    """Fails in one way or another on the price 3."""

    state: ClassVar[dict[str, Any]] = {"n": int}
    returns = int

    def __init__(self, how: str) -> None:
        super().__init__("price")
        self.how = how

    def add(self, state: dict[str, Any] | None, values: list[Any]) -> dict[str, Any]:
        if 3 in values:
            match self.how:
                case "add":
                    raise ValueError("no threes")
                case "other columns":
                    return {"m": 1}
                case "other type":
                    return {"n": "three"}
                case "no dict":
                    return 3  # type: ignore[return-value]
        return {"n": sum(values)}

    def result(self, state: dict[str, Any]) -> Any:
        if state["n"] == 3 and self.how == "result":
            raise KeyError("three")
        return "three" if state["n"] == 3 and self.how == "no int" else state["n"]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("add", "Wrong.add(None, [3]) raised ValueError: no threes ("),
        ("other columns", "Wrong gave {'m': 1}, which is not a valid state of n Int64"),
        ("other type", "Wrong gave {'n': 'three'}, which is not a valid state of n Int64"),
        ("no dict", "Wrong gave 3, which is not a valid state of n Int64"),
        ("result", "Wrong.result({'n': 3}) raised KeyError: 'three'"),
        ("no int", "Wrong.result gave 'three', which is not of type Int64"),
    ],
)
def test_it_is_told_which_rows_it_failed_on(how: str, says: str) -> None:
    flow = fk.Flow("app")
    bids = flow.source("bids", key="auction", value=fk.Json({"auction": fk.Int64, "price": fk.Int64}))
    bids.group_by("auction", id="sums").agg(total=Wrong(how)).sink("out", key="auction", value=fk.Json())
    app = MemoryApp(flow)
    for price in (1, 2, 3, 4):
        app.append("bids", str(price).encode(), msgspec.json.encode({"auction": price, "price": price}))
    with pytest.raises(UserCodeError) as caught:
        app.run()
    assert says in caught.value.what
    assert "group_by 'sums'" in caught.value.where
    assert "group {'auction': 3}, topic bids, partition 0, offset 2" in caught.value.where
    assert caught.value.hint
