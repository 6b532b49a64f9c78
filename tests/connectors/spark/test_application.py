"""Applications that end under their work, their page and their settings. PySpark has one for each process: these are in
another process than pytest's, and one JVM is enough for all of them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

PROGRAM = """
from urllib.request import urlopen
from falkirk.connectors.spark.application import Application
from falkirk.connectors.spark.errors import ApplicationEnded
from falkirk.connectors.spark.session import session
from falkirk.errors import ConfigError

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
    print(again is spark)

print(application.ui, urlopen(application.ui).status)
application.close()
application = Application("no page", "local[1]", {"spark.ui.enabled": "false"})
with application.at_work():
    print(repr(application.ui))
application.close()

refused = Application("refused", "local[1]", {"spark.sql.shuffle.partitions": "much"})
for make in (lambda: session(master="local[1]", settings={"spark.executor.heartbeatInterval": "much"}),
             lambda: refused.at_work().__enter__()):
    for _ in range(2):
        try:
            make()
        except ConfigError as error:
            print(str(error).replace(chr(10), " "))
"""


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """What it prints."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout.splitlines()


@pytest.mark.slow
def test_another_follows_an_application_that_has_ended(lines: list[str]) -> None:
    ended = "5 Spark's application has ended in the middle of its work; "
    assert lines[0] == f"{ended * 2}others' errors are theirs True False"


@pytest.mark.slow
def test_sparks_page_is_on_loopback_and_the_users_settings_win(lines: list[str]) -> None:
    assert re.fullmatch(r"http://(127\.0\.0\.1|localhost):\d+ 200", lines[1])
    assert lines[2] == "''"


@pytest.mark.slow
def test_a_setting_that_spark_refuses_is_the_users_however_often(lines: list[str]) -> None:
    for setting, first, second in (("heartbeatInterval", *lines[3:5]), ("shuffle.partitions", *lines[5:7])):
        assert first == second
        assert first.startswith("Spark refuses a setting: ")
        assert setting in first
        assert first.endswith("to do: check what is given with --spark-set")
