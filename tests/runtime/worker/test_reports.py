"""A worker's reports have all that its tasks have counted."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.bad_input.stand import Stand

from falkirk.runtime.app.until_end import UntilEnd
from falkirk.runtime.messages.protocol import Report
from falkirk.runtime.worker.work import Reporter

pytestmark = pytest.mark.kafka


def test_the_last_report_has_what_tasks_counted_before_they_left(stand: Stand) -> None:
    stand.topic()
    stand.bids(40)
    said: list[Report] = []
    with stand.worker(stand.flow()) as worker:
        end = UntilEnd(worker.app, stand.settings.cluster(), worker.topics)
        reporter = Reporter(worker, 0, said.append)
        worker.run(end.finished)
        reporter.report()
        end.close()
    (last,) = said
    assert last.tasks == []
    assert Counter({task.task: task.rows for task in last.left}).total() == 40
