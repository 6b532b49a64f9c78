"""When a process beside the workers, which dies again and again, ends the run."""

from __future__ import annotations

import sys
import time

import pytest
from tests.waiting import PATIENCE_S

from falkirk.errors import CrashError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.events import WorkerEvent
from falkirk.runtime.processes import kept_child
from falkirk.runtime.processes.gateway_child import GatewayChild
from falkirk.runtime.processes.kept_child import KeptChild
from falkirk.runtime.processes.supervisor import CRASHES


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pipes of processes that have ended
@pytest.mark.parametrize("soon", [PATIENCE_S, 0.0], ids=["soon after its start", "later"])
def test_deaths_in_a_row_end_the_run_if_each_comes_soon(soon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_child, "AGAIN", 0.001)

    class Dies(KeptChild):
        def __init__(self) -> None:
            self.soon, self.deaths = soon, list[WorkerEvent]()  # type: ignore[misc]
            super().__init__("the gateway", [sys.executable, "-c", "exit(1)"], Settings("", ""), self.deaths.append)

    child, deadline, error = Dies(), time.monotonic() + PATIENCE_S, None
    while error is None and len(child.deaths) <= CRASHES and time.monotonic() < deadline:
        try:
            child.finished()
        except CrashError as raised:
            error = raised
        time.sleep(0.01)
    child.close()
    if soon:
        assert error is not None
        assert error.what.startswith("the gateway keeps dying")
    else:
        assert error is None
        assert len(child.deaths) > CRASHES


def test_a_gateway_that_has_worked_for_long_may_die_many_times() -> None:
    assert GatewayChild.soon < 60
