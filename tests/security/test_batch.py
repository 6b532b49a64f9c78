"""A batch part on a secured cluster: Spark's tasks read and publish with the settings of the run."""

from __future__ import annotations

import json

import psutil
import pytest
from tests.security.guarded import FLOW, PASSWORD, Guarded

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

BATCH = f"""{FLOW}
whole = bids.with_regime(fk.Batch())
totals = whole.group_by("auction", id="totals").agg(n=fk.len())
totals.sink(PREFIX + "totals", key="auction", value=fk.Json())
"""
SPARK = """
[spark]
master = "local[2]"
hadoop.falkirk.test.secret = {env = "PASSWORD"}
"""


def test_an_epoch_is_computed_and_published_with_the_rights_that_are_printed_for_it(app: Guarded) -> None:
    app.topic()
    app.bids(200)
    app.allow(flow=BATCH)
    app.file.write_text(app.file.read_text() + SPARK)
    going = app.begin("--until", "end", "--log-format", "json", flow=BATCH)
    run, seen = psutil.Process(going.process.pid), set[str]()
    while going.process.poll() is None:
        for process in run.children(recursive=True):
            try:
                seen.add(" ".join(process.cmdline()))
            except psutil.Error:
                continue
        psutil.wait_procs([run], timeout=0.2)
    shown = going.end()
    assert shown.code == 0, shown.text
    assert any("org.apache.spark.deploy.SparkSubmit" in command for command in seen)
    assert not any(PASSWORD in command for command in seen)
    assert PASSWORD not in shown.text
    said = [json.loads(line) for line in shown.text.splitlines()]
    assert any("epoch 0 of totals is complete" in one["message"] for one in said)
    assert sum(app.counts("totals").values()) == 200
    app.assert_exact()
