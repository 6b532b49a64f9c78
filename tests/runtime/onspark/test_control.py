"""Orders to the tasks of a run, and reports of its workers, on one control topic."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import TopicPartition
from falkirk.connectors.kafka.admin.topic_settings import CONTROL
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import PARTITIONS, REPORTS, Tail
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.errors import ConfigError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.events import Ended
from falkirk.runtime.messages.orders import LeaveListener, forget, order_to_leave
from falkirk.runtime.messages.protocol import EpochReport, Report, TaskReport
from falkirk.runtime.messages.reports import ReportSender, announced, read_reports
from falkirk.runtime.spark_workers.task import Forward, own_state_dir
from falkirk.runtime.spark_workers.workers import check_shared, there


@pytest.fixture
def control(kafka: str, topic_prefix: str) -> str:
    Topics(Cluster(kafka)).create(f"{topic_prefix}control", PARTITIONS, 1, CONTROL)
    return f"{topic_prefix}control"


@pytest.mark.kafka
def test_the_order_to_leave_reaches_the_tasks_of_its_run_whenever_they_begin(kafka: str, control: str) -> None:
    cluster = Cluster(kafka)
    with (
        closing(LeaveListener(cluster, control, "one")) as early,
        closing(LeaveListener(cluster, control, "two")) as other,
    ):
        order_to_leave(cluster, control, "one")
        with closing(LeaveListener(cluster, control, "one")) as late:
            assert early.leave.wait(PATIENCE_S)
            assert late.leave.wait(PATIENCE_S)
        time.sleep(1.5)
        assert not other.leave.is_set()
    forget(cluster, control, "one")


@pytest.mark.kafka
def test_reports_are_summed_up_and_say_of_which_run_they_are(kafka: str, control: str) -> None:
    cluster = Cluster(kafka)
    tail = Tail(cluster, TopicPartition(control, REPORTS))
    announcing = ReportSender(cluster, control, "one")
    forward = Forward(announcing)
    for rows in (10, 20, 30):
        forward(Report(3, "app.w-3", 77, [TaskReport("t/0", "running", rows=rows, dead=1)], commits=1))
    announcing._announcer._said = 0.0
    forward(Report(3, "app.w-3", 77, [TaskReport("t/0", "running", rows=40)], commits=1))
    announcing._announcer._producer.flush(PATIENCE_S)
    first, second = [a for record in tail.look() if (a := announced(record)) is not None]
    assert (first.run, first.report.slot, first.report.tasks[0].rows) == ("one", 3, 10)
    assert [(t.rows, t.dead) for t in second.report.tasks] == [(90, 2)]
    assert (second.report.seconds, second.report.commits) == (3.0, 3)
    assert read_reports(cluster, control).workers == {"app.w-3": second}
    forward(Report(3, "app.w-3", 77, [TaskReport("t/0", "running", rows=5)], commits=1))
    forward(Ended(None, 78, "ended with code 1"))
    forward(Ended(3, 77, "was killed by signal 9"))
    announcing._announcer._producer.flush(PATIENCE_S)
    counted, gone = [a.report.tasks for record in tail.look() if (a := announced(record)) is not None]
    assert (counted[0].phase, counted[0].rows) == ("running", 5)
    assert gone == [TaskReport("t/0", "recovering")]
    announcing.close()
    assert read_reports(cluster, control).workers == {}
    tail.close()


@pytest.mark.kafka
def test_an_epoch_is_announced_while_it_is_under_way(kafka: str, control: str) -> None:
    cluster = Cluster(kafka)
    announcing = ReportSender(cluster, control)
    for state in ("complete", "running", "complete", "abandoned"):
        report = EpochReport("usual", 3, state, "sorts", 1, 2, "http://127.0.0.1:4040")  # type: ignore[arg-type]
        announcing.say((), [report])
        announcing._announcer._producer.flush(PATIENCE_S)
        heard = read_reports(cluster, control).epochs
        assert [said.report for said in heard.values()] == ([report] if state == "running" else [])
    announcing.close()


def test_without_a_store_to_share_workers_go_to_no_other_host() -> None:
    with pytest.raises(ConfigError, match=r"give a --checkpoints URL that all executors reach"):
        check_shared(Settings("b:1", "s", spark="spark://one:7077"))
    check_shared(Settings("b:1", "s", spark="spark://one:7077", checkpoints="s3://bucket/app"))
    check_shared(Settings("b:1", "s", spark="local[2]"))


def test_workers_of_this_machine_share_its_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert there(Settings("b:1", "s", spark="local[2]")).state_dir == str(tmp_path / "s")
    assert there(Settings("b:1", "s", spark="spark://one:7077")).state_dir == ""
    assert there(Settings("b:1", "s", spark="yarn", executors_state_dir="/var/s")).state_dir == "/var/s"


def test_an_executors_own_state_directory_is_its_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    folder = own_state_dir()
    assert folder == own_state_dir()
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
