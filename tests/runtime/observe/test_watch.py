"""The watch of a run's workers."""

from __future__ import annotations

import pytest
from tests.ports import free_port
from tests.runtime.observe.test_board import app, running

from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.events import Ended, Started
from falkirk.runtime.messages.protocol import Report
from falkirk.runtime.observe.watch import Watch


def test_what_comes_after_the_end_of_a_process_is_heard_before_the_watch_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Watch(app(), Settings(f"127.0.0.1:{free_port()}", "state"), 1, live=False)
    watch.tell(Started(0, 100))
    watch.tell(Ended(None, 7, "ended with code 0"))
    watch.tell(Report(0, "auctions.w-0", 100, [running(0, 5, 5, rows=9)]))
    watch.tell(Ended(None, 8, "ended with code 0"))
    watch.tell(Report(0, "auctions.w-0", 100, [running(1, 5, 5, rows=9)]))
    monkeypatch.setattr(watch._announcing, "close", lambda: None)  # no broker is there to be told
    watch._closed.set()  # it ends at its first look
    watch._run()
    assert watch.board.failed() == (2, 4)
