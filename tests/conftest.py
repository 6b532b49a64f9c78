"""Brokers for the tests: one that the whole session shares, and ones of their own for tests that kill them."""

from __future__ import annotations

import faulthandler
import gc
import os
import re
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import settings
from tests.shared import SETTINGS, SharedBroker, shared_broker
from xdist.scheduler import LoadFileScheduling

from falkirk.connectors.embedded import EmbeddedKafka

# Spark's JVMs start for little work here: compiling it twice costs more than it saves.
for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(variable, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A shell starts what runs in the background with SIGINT ignored, and children inherit that: what a test sends one of
# them as a Ctrl-C would be lost.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The machine may be busy: how long one example takes says nothing.
settings.register_profile("falkirk", deadline=None)
settings.load_profile("falkirk")

TEARDOWN = 300.0
"""Seconds that a test may take to clean up. Once it has failed, pytest watches over it no longer."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """A run whose cleaning up stands still ends, and says where: it would hold the machine for as long as it is let."""
    uncaptured = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(TEARDOWN, exit=True, file=uncaptured)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


SHARED = pytest.StashKey[SharedBroker]()

ONE_SPARK = "tests/connectors/spark/"
LONGEST = (
    *(ONE_SPARK, "tests/runtime/backfill/", "tests/faults/", "tests/simulator/", "tests/cli/", "tests/soak/"),
    *("tests/epochs/", "tests/parts/", "tests/connectors/"),
)
"""Folders whose files take longest: begun first, so that no process is left with one of them while the others are done."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--every-case`: see tests/simulator/conftest.py."""
    parser.addoption("--every-case", action="store_true", help="explore every case in the simulator, not each fourth")


def pytest_configure(config: pytest.Config) -> None:
    """The process that hands the tests out keeps the broker for those that run them; it may be the same one."""
    if not hasattr(config, "workerinput"):
        config.stash[SHARED] = SharedBroker()


def pytest_unconfigure(config: pytest.Config) -> None:
    """No process runs a test any more."""
    if (broker := config.stash.get(SHARED, None)) is not None:
        gc.collect()  # clients in a trace's cycles would look for the broker, and complain, until the run's end
        broker.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first."""
    items.sort(key=lambda item: next((i for i, f in enumerate(LONGEST) if item.nodeid.startswith(f)), len(LONGEST)))


def pytest_collection_finish() -> None:
    """Libraries and tests stay until the end: going through them at each garbage collection costs a twentieth of the time."""
    gc.collect()
    gc.freeze()


class ByFile(LoadFileScheduling):
    """The tests of a file run in one process, and those with a Spark all in the same one: a Spark takes seconds to start."""

    def _split_scope(self, nodeid: str) -> str:
        one = nodeid.startswith(ONE_SPARK) and not nodeid.startswith(f"{ONE_SPARK}cluster/")
        return ONE_SPARK if one else str(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile | None:
    """For `--dist loadfile`."""
    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def kafka() -> str:
    """The bootstrap address of a broker that all tests share: give topics a `topic_prefix`, and do not stop it."""
    return shared_broker()


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Callable[..., EmbeddedKafka]]:
    """Makes brokers for this test alone, not started yet; `embedded(name, **arguments)` uses one data folder a name."""
    made: list[EmbeddedKafka] = []

    def make(name: str = "kafka", **arguments: Any) -> EmbeddedKafka:
        made.append(EmbeddedKafka(tmp_path / name, **{"settings": SETTINGS, **arguments}))
        return made[-1]

    yield make
    for broker in made:
        broker.stop()


@pytest.fixture
def topic_prefix(request: pytest.FixtureRequest) -> str:
    """What this test's topics begin with, so that tests can share a broker, and a test can run again on it."""
    return f"{re.sub('[^A-Za-z0-9]+', '-', request.node.name)[:60]}-{uuid4().hex[:8]}-"


@pytest.fixture
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary folders in memory where the system has such a place: thousands of syncs are minutes on a busy disk.

    A copy of the files shows what a killed process leaves whether they were synced or not.
    """
    shared = Path("/dev/shm")
    if os.access(shared, os.W_OK):
        monkeypatch.setattr(tempfile, "tempdir", str(shared))
