"""What the parts of a worker do when the group takes tasks away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.errors import OutgrownError
from falkirk.runtime.worker.parts import Parts


class DepartingPerformer:
    """It needs two turns until its tasks have left. In the first it learns that another task has a newer layout."""

    def __init__(self) -> None:
        self.left = 2

    @property
    def departing(self) -> bool:
        return self.left > 0

    def perform(self) -> None:
        self.left -= 1
        if self.left == 1:
            raise OutgrownError("the flow has been changed")

    def wait(self) -> None:
        pass


def test_a_worker_that_is_outgrown_while_tasks_leave_lets_them_leave_first() -> None:
    """Then it leaves itself, which cannot begin before the group was answered."""
    performer = DepartingPerformer()
    core = SimpleNamespace(revoke=lambda lost, clean: None)
    domain: Any = SimpleNamespace(core=core, performer=performer)
    plan: Any = SimpleNamespace(app="shop", on_failure="app", stages=[SimpleNamespace(id="stats")])
    parts = Parts(lambda _: domain, lambda *_: pytest.fail("no part has failed"), "w0", plan)
    with pytest.raises(OutgrownError):
        parts.revoke({"stats": [0]}, clean=True)
    assert not performer.departing
