"""Epochs computed by Spark: what people hear before the first one."""

from __future__ import annotations

from typing import Any

import pytest

from falkirk.runtime.epochs.spark import SparkCompute
from falkirk.runtime.host.settings import Settings


class Told(Exception):
    pass


def test_a_driver_says_that_spark_starts_before_it_does() -> None:
    def hear(what: str, done: int, of: int) -> None:
        raise Told(what)

    nothing: Any = None
    compute = SparkCompute(nothing, Settings("127.0.0.1:1", ""))
    with pytest.raises(Told, match="Spark starts"):
        compute(nothing, nothing, nothing, hear)
    assert compute.ui == ""
