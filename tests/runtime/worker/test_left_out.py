"""How often the log says that rows count in no result."""

from __future__ import annotations

import logging

import pytest

from falkirk.runtime.worker.work import LeftOut


def test_rows_that_count_in_no_result_are_logged_at_once_then_now_and_then_and_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    late = LeftOut("came too late")
    with caplog.at_level(logging.WARNING, "falkirk.kafka"):
        late.add({"near/0": 0}, 99.0)
        assert caplog.messages == []
        for now in range(100, 190):
            late.add({"near/0": 1, "near/1": 2, "best/0": 0}, float(now))
        late.log()
        late.log()
    first, second, third = caplog.messages
    assert first == "3 rows came too late: 2 of task near/1, 1 of task near/0"
    assert second == "180 rows came too late: 120 of task near/1, 60 of task near/0"
    assert third == "87 rows came too late: 58 of task near/1, 29 of task near/0"
