"""What Prometheus and probes are told, of what workers said."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import msgspec
import pytest
from msgspec.structs import replace
from tests.ports import needs_ipv6
from tests.runtime.observe.test_board import Time, app, rolling, running
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.reading.lag import Remaining
from falkirk.errors import ConfigError
from falkirk.runtime.gateway.metrics import ReducedRows, SubscriberMetrics
from falkirk.runtime.messages.events import Ended, Line, Started, WorkerEvent
from falkirk.runtime.messages.protocol import (
    BOUNDS,
    LEFT,
    EpochReport,
    Report,
    Request,
    TaskReport,
    decode_from_worker,
    encode,
    merged,
)
from falkirk.runtime.messages.stats import Durations
from falkirk.runtime.observe.board import Board
from falkirk.runtime.observe.http import Http
from falkirk.runtime.observe.metrics import SILENT, Metrics
from falkirk.stream.dataflow.task_counts import CallCounts, SourceWatermark


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def board(time: Time) -> Board:
    return Board(app(), 2, time)


@pytest.fixture
def metrics(board: Board, time: Time) -> Metrics:
    return Metrics(board, time)


Tell = Callable[[WorkerEvent], None]


@pytest.fixture
def tell(metrics: Metrics) -> Tell:
    """As a watch does."""

    def tell(news: WorkerEvent) -> None:
        metrics.heard(news)
        metrics.take(news)

    return tell


def report(slot: int, *tasks: TaskReport, commits: int = 1, steps: tuple[float, ...] = (), pid: int = 0) -> Report:
    took = Durations()
    for seconds in steps:
        took.add(seconds)
    return Report(
        slot, f"w{slot}", pid or 10 + slot, list(tasks), 1.0, took.mean_ms(), took.mean_ms(), commits, took.told(),
        took.told(), True,
    )  # fmt: skip


@pytest.fixture
def at_work(tell: Tell) -> None:
    """Two workers with a task each."""
    for slot in (0, 1):
        tell(Started(slot, 10 + slot))
        tell(report(slot, running(slot, 90, 100, rows=50)))


def samples(metrics: Metrics) -> dict[str, float]:
    """By name and labels."""
    return {s.name + "".join(f" {v}" for v in s.labels.values()): s.value for m in metrics.collect() for s in m.samples}


@pytest.mark.usefixtures("at_work")
def test_what_reports_say_is_summed_up(metrics: Metrics, tell: Tell) -> None:
    tell(report(0, running(0, 100, 100, rows=10)))
    found = samples(metrics)
    assert found["falkirk_records_read_total stats stats/0"] == 60
    assert found["falkirk_records_read_total stats stats/1"] == 50
    assert found["falkirk_dead_letters_total stats stats/0"] == 2
    assert found["falkirk_skipped_total stats stats/0"] == 4
    assert found["falkirk_late_rows_total stats stats/0"] == 6
    assert found["falkirk_lag_records stats stats/0"] == 0
    assert found["falkirk_lag_records stats stats/1"] == 10
    assert found["falkirk_step stats stats/0"] == 41
    assert found["falkirk_version stats stats/0"] == 7
    assert found["falkirk_version_behind_seconds stats stats/0"] == 3
    assert found["falkirk_tasks stats"] == 2
    assert found["falkirk_task_running stats stats/0"] == 1
    assert found["falkirk_workers running"] == 2


@pytest.mark.usefixtures("at_work")
def test_what_a_task_counted_before_it_left_counts_too(metrics: Metrics, board: Board, tell: Tell) -> None:
    gone = TaskReport("stats/0", LEFT, rows=10, dead=1, skipped=2, late=3)
    first, second = report(0, running(0, 100, 100, rows=5)), replace(report(0), left=[gone])
    tell(decode_from_worker(encode(merged([first, second]))))  # type: ignore[arg-type]
    found = samples(metrics)
    assert found["falkirk_records_read_total stats stats/0"] == 65
    assert found["falkirk_dead_letters_total stats stats/0"] == 3
    assert found["falkirk_skipped_total stats stats/0"] == 6
    assert found["falkirk_late_rows_total stats stats/0"] == 9
    assert board.read == 115
    assert board.failed() == (4, 8)
    assert [len(worker.tasks) for worker in board.workers.values()] == [0, 1]


@pytest.mark.usefixtures("at_work")
def test_a_task_that_a_stopped_worker_has_lost_is_measured_once_as_its_new_worker_reports_it(
    metrics: Metrics, tell: Tell, time: Time
) -> None:
    time.now += 30  # worker 0 was stopped, and reports nothing any more
    tell(report(1, replace(running(0, 100, 100), step=77), running(1, 100, 100)))
    series = [(s.name, *s.labels.values()) for m in metrics.collect() for s in m.samples]
    assert len(series) == len(set(series))
    found = samples(metrics)
    assert (found["falkirk_step stats stats/0"], found["falkirk_lag_records stats stats/0"]) == (77, 0)
    time.now += 1
    tell(report(0, running(0, 95, 100)))  # it has the task again
    assert samples(metrics)["falkirk_lag_records stats stats/0"] == 5


@pytest.mark.usefixtures("at_work")
def test_a_take_over_is_compared_with_what_was_predicted_and_absent_if_it_was_not_measured(
    metrics: Metrics, tell: Tell
) -> None:
    assert not [name for name in samples(metrics) if "takeover" in name]
    tell(report(0, replace(running(0, 90, 100), took=1.5, expected=1.25)))
    found = samples(metrics)
    assert found["falkirk_takeover_seconds stats stats/0"] == 1.5
    assert found["falkirk_takeover_predicted_seconds stats stats/0"] == 1.25


@pytest.mark.usefixtures("at_work")
def test_watermarks_are_those_of_the_last_report_and_absent_while_no_time_is_complete(
    metrics: Metrics, tell: Tell
) -> None:
    assert not [name for name in samples(metrics) if "watermark" in name]
    marks = {"bids": SourceWatermark(1_500, "bids[0]"), "asks": SourceWatermark(None, "asks[1]")}
    tell(report(0, replace(running(0, 100, 100), watermarks=marks)))
    found = {name: value for name, value in samples(metrics).items() if "watermark" in name}
    assert found == {"falkirk_watermark_seconds stats stats/0 bids": 1.5}


@pytest.mark.usefixtures("at_work")
def test_calls_of_services_are_summed_up_by_operator_over_reports_that_are_merged_too(
    metrics: Metrics, tell: Tell
) -> None:
    first = replace(running(0, 100, 100), calls={"score": CallCounts(3, 1, 0, 0.5)})
    second = replace(running(0, 100, 100), calls={"score": CallCounts(2, 1, 1, 0.25), "place": CallCounts(1)})
    tell(merged([report(0, first), report(0, second), report(0, running(0, 100, 100))]))
    tell(decode_from_worker(encode(report(0, first))))  # type: ignore[arg-type]
    found = samples(metrics)
    assert found["falkirk_call_seconds_count stats stats/0 score"] == 8
    assert found["falkirk_call_seconds_sum stats stats/0 score"] == 1.25
    assert found["falkirk_call_retries_total stats stats/0 score"] == 3
    assert found["falkirk_call_failures_total stats stats/0 score"] == 1
    assert found["falkirk_call_seconds_count stats stats/0 place"] == 1


@pytest.mark.usefixtures("at_work")
def test_a_tail_that_holds_no_record_is_no_lag(metrics: Metrics, board: Board) -> None:
    board.counted = {Remaining(TopicPartition("bids", 1), Offset(90), Offset(100)): 0}
    assert samples(metrics)["falkirk_lag_records stats stats/1"] == 0


@pytest.mark.usefixtures("at_work")
def test_times_fall_into_buckets_that_hold_all_below(metrics: Metrics, tell: Tell) -> None:
    tell(report(0, running(0, 100, 100), steps=(0.0005, 0.002, 0.002)))
    tell(report(0, running(0, 100, 100), steps=(0.002, 60.0)))
    found = samples(metrics)
    assert [found[f"falkirk_step_seconds_bucket 0 {b}"] for b in ("0.001", "0.0025", "10.0", "+Inf")] == [1, 4, 4, 5]
    assert found["falkirk_step_seconds_count 0"] == 5
    assert found["falkirk_commit_seconds_sum 0"] == pytest.approx(60.0065, rel=1e-3)
    assert found["falkirk_step_seconds_count 1"] == 0


@pytest.mark.usefixtures("at_work")
def test_a_worker_that_is_replaced_is_a_restart_and_a_recovery(metrics: Metrics, tell: Tell, time: Time) -> None:
    tell(Ended(1, 11, "was killed by signal 9"))
    tell(Started(1, 12))
    tell(report(1, rolling(1, 1, 10), pid=12))
    found = samples(metrics)
    assert (found["falkirk_workers recovering"], found["falkirk_task_running stats stats/1"]) == (1, 0)
    time.now += 2
    tell(report(1, running(1, 100, 100), pid=12))
    found = samples(metrics)
    assert found["falkirk_worker_restarts_total 1"] == 1
    assert (found["falkirk_recovery_seconds_count"], found["falkirk_recovery_seconds_sum"]) == (1, 2)


def test_epochs_are_counted_when_they_end(metrics: Metrics, tell: Tell) -> None:
    for state in ("opened", "running", "complete"):
        tell(EpochReport("usual", 7, state, "words"))
    tell(EpochReport("usual", 8, "abandoned", "words"))
    found = samples(metrics)
    assert found["falkirk_epoch usual"] == 8
    assert (found["falkirk_epochs_total usual complete"], found["falkirk_epochs_total usual abandoned"]) == (1, 1)


def test_a_worker_is_ready_when_its_tasks_run_and_it_has_committed_or_nothing_to_read(
    metrics: Metrics, tell: Tell
) -> None:
    assert metrics.ready() == "2 of 2 workers starting"
    tell(Started(0, 10))
    tell(Started(1, 11))
    assert metrics.ready() == "worker 0 is starting\nworker 1 is starting"
    tell(report(0, rolling(0, 1, 10), commits=0))
    tell(report(1, running(1, 100, 100), commits=0))
    assert metrics.ready() == "worker 0 takes over stats/0 (rolling)"
    tell(report(0, running(0, 90, 100), commits=0))
    assert metrics.ready() == "worker 0 has committed nothing yet, and has something to read"
    tell(report(0, running(0, 90, 100), commits=1))
    tell(report(0, running(0, 90, 100), commits=0))
    assert metrics.ready() == ""
    tell(Ended(0, 10, "was killed by signal 9"))
    assert metrics.ready() == "worker 0 is starting"
    tell(Started(0, 12))
    tell(report(0, running(0, 90, 100), commits=0, pid=12))
    assert metrics.ready() == "worker 0 has committed nothing yet, and has something to read"


def test_a_paused_worker_is_ready_whatever_there_is_to_read(metrics: Metrics, tell: Tell) -> None:
    for slot in (0, 1):
        tell(Started(slot, 10 + slot))
        waiting = report(slot, running(slot, 90, 100), commits=0)
        tell(msgspec.structs.replace(waiting, paused=Request("ann@host", 1)))
    assert metrics.ready() == ""
    assert samples(metrics)["falkirk_workers paused"] == 2


@pytest.mark.usefixtures("at_work")
def test_a_worker_for_which_the_group_has_no_task_is_ready(metrics: Metrics, tell: Tell) -> None:
    tell(report(1, commits=0))
    assert metrics.ready() == ""


@pytest.mark.usefixtures("at_work")
def test_who_is_silent_for_long_is_not_alive(metrics: Metrics, tell: Tell, time: Time) -> None:
    assert metrics.live() == ""
    time.now += SILENT + 1
    assert metrics.live() == f"the loop has not turned for {SILENT + 1:.0f} s"
    metrics.turned()
    tell(report(0, running(0, 100, 100)))
    assert metrics.live() == f"worker 1 has said nothing for {SILENT + 1:.0f} s"
    tell(Ended(1, 11, "was killed by signal 9"))
    assert metrics.live() == ""


def test_the_reference_lists_what_there_is(metrics: Metrics) -> None:
    script = Path(__file__).parents[3] / "tools" / "reference.py"
    shown = subprocess.run([sys.executable, script, "metrics"], capture_output=True, text=True, check=True).stdout
    listed = re.findall(r"^\| `(falkirk_\w+)` \| ([\w, ]*)", shown, re.MULTILINE)
    made = [*metrics.collect(), *SubscriberMetrics([]).collect(), *ReducedRows([]).collect()]
    found = {m.name + {"counter": "_total", "info": "_info"}.get(m.type, "") for m in made}
    assert sorted(name for name, _ in listed) == sorted(found)


@pytest.mark.usefixtures("at_work")
def test_a_low_watermark_is_that_of_the_copied_versions(metrics: Metrics, tell: Tell) -> None:
    name, task = "falkirk_low_watermark_behind_seconds stats stats/0", running(0, 100, 100)
    tell(report(0, replace(task, versioned=(38, 9_000), copies=((20, 5_000),))))
    assert name not in samples(metrics), "the only copy may be damaged"
    tell(report(0, replace(task, versioned=(38, 9_000), copies=((20, 5_000), (31, 7_000)))))
    assert samples(metrics)[name] == 3 + (9_000 - 5_000) / 1000


def test_lines_for_people_are_no_news(metrics: Metrics, tell: Tell) -> None:
    before = samples(metrics)
    tell(Line("something"))
    assert samples(metrics) == before


def test_times_go_with_reports_and_are_summed_with_them() -> None:
    first, second = report(0, steps=(0.0005, 0.02)), report(0, steps=(0.02,))
    decoded = decode_from_worker(encode(merged([first, second])))
    assert isinstance(decoded, Report)
    assert sum(decoded.step_times) == 3
    assert decoded.step_times[BOUNDS.index(0.025)] == 2
    assert merged([report(0), first]).commit_times == first.commit_times
    assert report(0).step_times == ()


@pytest.fixture
def http(metrics: Metrics) -> Iterator[Http]:
    server = Http("0", metrics)
    yield server
    server.close()


@pytest.mark.usefixtures("at_work")
def test_http_answers_what_it_is_asked(http: Http, time: Time) -> None:
    with urlopen(f"{http.url}/metrics") as answer:
        text = answer.read().decode()
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert 'falkirk_records_read_total{stage="stats",task="stats/0"} 50.0\n' in text
    assert 'falkirk_info{app="auctions",version=' in text
    assert urlopen(f"{http.url}/ready").read() == b"ok\n"
    assert urlopen(f"{http.url}/live?verbose").read() == b"ok\n"
    time.now += SILENT + 1
    with pytest.raises(HTTPError) as caught:
        urlopen(f"{http.url}/live")
    with caught.value as refused:
        assert (refused.code, refused.read()) == (503, b"the loop has not turned for 301 s\n")
    with pytest.raises(HTTPError) as caught:
        urlopen(f"{http.url}/")
    with caught.value as missing:
        assert (missing.code, missing.read()) == (404, b"there are: /metrics /live /ready\n")


def test_clients_that_send_nothing_do_not_hold_it(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("falkirk.runtime.observe.http.CONNECTIONS", 3)
    monkeypatch.setattr("falkirk.runtime.host.serving.LIFE", 1.0)
    server = Http("0", metrics)
    place = urlsplit(server.url)
    silent = [socket.create_connection((place.hostname or "", place.port or 0)) for _ in range(3)]
    with pytest.raises(HTTPError, match="503"):
        urlopen(f"{server.url}/live")
    for connection in silent:
        connection.settimeout(PATIENCE_S)
        assert connection.recv(1) == b"", "it is cut"
        connection.close()
    while server._server._begun:
        sleep(0.01)
    assert urlopen(f"{server.url}/live").read() == b"ok\n"
    server.close()
    assert "Traceback" not in capfd.readouterr().err


@needs_ipv6
def test_an_address_may_be_one_of_ipv6(metrics: Metrics) -> None:
    server = Http("[::1]:0", metrics)
    try:
        assert server.url.startswith("http://[::1]:")
        assert urlopen(f"{server.url}/metrics").status == 200
    finally:
        server.close()


def test_an_address_that_cannot_be_listened_at_is_said(http: Http, metrics: Metrics) -> None:
    taken = http.url.removeprefix("http://")
    with pytest.raises(ConfigError, match=f"cannot listen at {taken}: Address already in use"):
        Http(taken, metrics)
    for wrong in ("host", "host:", "1:70000", ":-1"):
        with pytest.raises(ConfigError, match="is not a valid address"):
            Http(wrong, metrics)
    with pytest.raises(ConfigError, match="cannot listen at no such host:1: "):
        Http("no such host:1", metrics)
