"""An application that ends under its work. PySpark has one for each process: these are other processes than pytest's."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

REFUSED = """
from falkirk.connectors.spark.session import session
from falkirk.errors import ConfigError
for _ in range(2):
    try:
        session(master="local[1]", settings={"spark.executor.heartbeatInterval": "much"})
    except ConfigError as error:
        print(str(error).replace(chr(10), " "), end="; ")
"""

ENDS = """
from falkirk.connectors.spark.application import Application
from falkirk.connectors.spark.errors import ApplicationEnded
application = Application("ends", "local[1]", {})
for _ in range(2):
    try:
        with application.at_work() as (spark, check):
            check()
            print(spark.range(5).count(), end=" ")
            spark.sparkContext._jsc.sc().stop()  # as when its master has removed it
            spark.range(5).count()
    except ApplicationEnded as error:
        print(error.what, end="; ")
try:
    with application.at_work() as (spark, _):
        raise KeyError("k")
except KeyError:
    print("others' errors are theirs", end=" ")
with application.at_work() as (again, _):
    print(again is spark, end=" ")
application.close()
with application.at_work() as (again, _):
    print(again is spark, end=" ")
"""


PAGE = """
from urllib.request import urlopen
from falkirk.connectors.spark.application import Application
for settings in ({}, {"spark.ui.enabled": "false"}):
    application = Application("page", "local[1]", settings)
    with application.at_work():
        print(application.ui, urlopen(application.ui).status if application.ui else "")
    application.close()
"""


@pytest.mark.slow
def test_sparks_page_is_on_loopback_and_the_users_settings_win() -> None:
    run = subprocess.run([sys.executable, "-c", PAGE], capture_output=True, text=True, check=False)
    first, second = run.stdout.splitlines()
    assert re.fullmatch(r"http://(127\.0\.0\.1|localhost):\d+ 200", first), run.stderr[-2000:]
    assert second == " "


@pytest.mark.slow
def test_another_follows_an_application_that_has_ended() -> None:
    run = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, check=False)
    ended = "5 Spark's application has ended in the middle of its work; "
    assert run.stdout == f"{ended * 2}others' errors are theirs True False ", run.stderr[-2000:]


@pytest.mark.slow
def test_a_setting_that_spark_refuses_is_the_users_however_often() -> None:
    run = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, check=False)
    first, second, _ = run.stdout.split("; ")
    assert first == second
    assert first.startswith("Spark refuses a setting: ")
    assert "heartbeatInterval" in first
    assert first.endswith("to do: check what is given with --spark-set")
