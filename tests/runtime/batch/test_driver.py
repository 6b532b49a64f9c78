"""Drivers on a real Kafka, with computations that need no Spark: what is opened, published, completed and abandoned."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest
from click.testing import CliRunner
from tests.runtime.batch.stand import PARTITIONS, Stand
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.driver import run
from falkirk.checkpoint.epochs import Epochs
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.cli.commands.epoch import Driving
from falkirk.cli.main import falkirk
from falkirk.connectors.kafka.app_topics.epochs import KafkaEpochLog
from falkirk.errors import ConfigError, DivergenceError, SourceError, StateError
from falkirk.runtime.inspect.check import check
from falkirk.runtime.inspect.status import read_status
from falkirk.runtime.messages.ends import recorded_end
from falkirk.runtime.messages.epochs import batch_part
from falkirk.runtime.messages.reports import ReportSender
from falkirk.runtime.messages.requests import CurrentRequests, current_requests

pytestmark = pytest.mark.kafka


@pytest.fixture
def stand(kafka: str, topic_prefix: str, tmp_path: Path) -> Stand:
    return Stand(kafka, topic_prefix, tmp_path)


def test_an_epoch_reads_what_was_there_when_it_was_opened_and_is_published_once(stand: Stand) -> None:
    stand.append(10)
    stand.drive()
    stand.drive()
    assert stand.values() == [b"10 0", b"10 1", b"10 2"] * PARTITIONS
    assert stand.compute.runs == 1, "what is complete is not computed again"
    assert [r.state for r in stand.said] == ["opened", "running", "complete"]


@pytest.mark.slow
def test_the_next_epoch_reads_the_whole_or_what_is_new(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    for history, second in (("whole", b"14"), ("new", b"4")):
        stand = Stand(kafka, f"{topic_prefix}{history}-", tmp_path / history, history=history)
        for count in (10, 4):
            stand.append(count)
            stand.drive()
        reads = [b"10 0", b"10 1", b"10 2", *(second + b" %d" % i for i in range(3))]
        assert stand.values() == reads * PARTITIONS


@pytest.mark.slow
def test_a_driver_that_dies_at_any_slice_is_followed_by_one_that_publishes_the_rest(stand: Stand) -> None:
    stand.append(6)

    class Died(BaseException):
        pass

    def die(_: int) -> None:
        stand.compute.at_slice = lambda _: None
        raise Died

    for slice_ in range(3):
        stand.compute.at_slice = lambda i, at=slice_: die(i) if i == at else None  # type: ignore[misc]
        with pytest.raises(Died), closing(stand.driver()) as driver:
            driver.drive(lambda: False)
    stand.append(3)
    stand.drive()
    assert stand.values() == [b"6 0", b"6 1", b"6 2", b"9 0", b"9 1", b"9 2"] * PARTITIONS


def test_other_rows_than_those_published_are_refused(stand: Stand) -> None:
    stand.append(2)

    def die(i: int) -> None:
        if i == 2:
            raise RuntimeError

    stand.compute.at_slice = die
    with pytest.raises(RuntimeError), closing(stand.driver()) as driver:
        driver.drive(lambda: False)
    stand.compute.at_slice = lambda _: None
    stand.compute.salt = " again"
    with pytest.raises(DivergenceError, match="epoch 0 computes other rows"), closing(stand.driver()) as driver:
        driver.drive(lambda: False)


@pytest.mark.slow
def test_an_epoch_that_is_abandoned_publishes_no_more(stand: Stand) -> None:
    stand.append(4)

    def abandon(i: int) -> None:
        if i == 1:
            stand.compute.at_slice = lambda _: None
            with batch_part(stand.app_name, "totals", stand.settings, stand.topics) as part:
                part.ask("abandon")
            raise RuntimeError

    stand.compute.at_slice = abandon
    with pytest.raises(RuntimeError), closing(stand.driver()) as driver:
        driver.drive(lambda: False)
    before = stand.values()
    stand.drive()  # closes epoch 0, then opens epoch 1
    after = stand.values()
    assert before == [b"4 0"] if len(before) == 1 else not before, "one slice at most was published"
    assert sorted(after, key=str) == sorted([*before, *[b"4 0", b"4 1", b"4 2"] * PARTITIONS], key=str)
    assert [r.state for r in stand.said][-4:] == ["abandoned", "opened", "running", "complete"] or stand.said


@pytest.mark.slow
def test_two_drivers_at_once_do_no_harm(stand: Stand) -> None:
    stop, drivers = Event(), [stand.driver(until_end=False) for _ in range(2)]
    threads = [Thread(target=d.drive, args=(stop.is_set,)) for d in drivers]
    with batch_part(stand.app_name, "totals", stand.settings, stand.topics) as part:
        for thread in threads:
            thread.start()
        for epoch in range(3):
            stand.append(2)
            part.ask("open")
            while (now := part.look()).complete != epoch:
                assert now.epoch in (None, epoch - 1, epoch)
    stop.set()
    for thread, driver in zip(threads, drivers, strict=True):
        thread.join()
        driver.close()
    assert stand.values() == [b"%d %d" % (n, i) for n in (2, 4, 6) for i in range(3)] * PARTITIONS


@pytest.mark.slow
def test_epochs_are_opened_when_so_many_records_are_new(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    stand = Stand(kafka, topic_prefix, tmp_path, every=5)
    stop, driver = Event(), stand.driver(until_end=False)
    thread = Thread(target=driver.drive, args=(stop.is_set,))
    thread.start()
    with batch_part(stand.app_name, "totals", stand.settings, stand.topics) as part:
        stand.append(4)
        assert part.look().epoch is None
        stand.append(1)
        while part.look().complete is None:
            pass
    stop.set()
    thread.join()
    driver.close()
    assert set(stand.values()) == {b"5 0", b"5 1", b"5 2"}


def test_another_definition_does_not_go_on_with_an_open_epoch(stand: Stand) -> None:
    stand.append(2)
    stand.compute.at_slice = lambda _: (_ for _ in ()).throw(RuntimeError)
    with pytest.raises(RuntimeError), closing(stand.driver()) as driver:
        driver.drive(lambda: False)
    with (
        pytest.raises(StateError, match="epoch 0 was opened with another definition of 'totals'"),
        closing(stand.driver(app=stand.prepared(least=7))) as driver,
    ):
        driver.drive(lambda: False)


@pytest.mark.slow
def test_the_log_of_epochs_stays_small(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("falkirk.checkpoint.epochs.KEPT", 2)
    for _ in range(4):
        stand.append(1)
        stand.drive()
    epochs = stand.app.batches[0].epochs
    assert len(stand.read(epochs, 1)) == 4, "the openings and ends of two epochs"
    assert len(stand.read(epochs, 1 + PARTITIONS)) == 4 + PARTITIONS


def test_status_tells_how_epochs_are(stand: Stand) -> None:
    stand.append(3)
    stand.drive()
    (found,) = read_status(stand.app_name, stand.settings, stand.topics).batches
    assert (found.stage, found.epoch, found.state, found.records, found.rows) == ("totals", 0, "complete", 3, 6)
    assert (found.published, found.partitions, found.complete) == (2, 2, 0)
    assert msgspec.json.encode(found)


def test_the_status_says_where_sparks_page_is_while_an_epoch_runs(stand: Stand) -> None:
    stand.append(10)
    stand.compute.ui = "http://127.0.0.1:4040"
    shown = []

    def look(i: int) -> None:
        announcing.say((), stand.said[-1:])
        announcing._announcer._producer.flush(PATIENCE_S)
        shown.append(read_status(stand.app_name, stand.settings, stand.topics).batches[0].spark_ui)

    stand.compute.at_slice = look
    with closing(ReportSender(stand.settings.cluster(), stand.app.control)) as announcing:
        stand.drive()
        assert shown[0] == stand.compute.ui
        (after,) = read_status(stand.app_name, stand.settings, stand.topics).batches
        assert (after.state, after.spark_ui) == ("complete", None)


def test_asking_for_what_is_not_there(stand: Stand) -> None:
    with (
        pytest.raises(ConfigError, match="no batch part 'total' on this cluster") as caught,
        batch_part(stand.app_name, "total", stand.settings, stand.topics),
    ):
        pass
    assert "totals" in caught.value.hint
    with (
        pytest.raises(ConfigError, match="no epoch of 'totals' is open"),
        batch_part(stand.app_name, "totals", stand.settings, stand.topics) as part,
    ):
        part.ask("abandon")


def test_what_is_replaced_lies_between_two_openings(stand: Stand) -> None:
    stand.append(2)
    stand.drive()
    (batch,) = stand.app.batches
    with closing(KafkaEpochLog(stand.settings.cluster())) as log, closing(stand.driver(until_end=False)) as driver:
        epochs = Epochs()
        driver._catch_up(epochs)
        driver._open(epochs)
        replaced = list(batch.replaced(epochs))
        assert run(log.end([TopicPartition(stand.sink, 0)]))
    # A slice is a record and the marker of its transaction.
    assert replaced == [(0, TopicPartition(stand.sink, p), Offset(0), Offset(6)) for p in range(PARTITIONS)]


def test_a_source_that_is_added_begins_where_its_start_points(stand: Stand) -> None:
    stand.append(2)
    stand.drive()
    added = f"{stand.source}-added"
    stand.topics.create(added, 1, 1, {})
    stand.append(3, added)
    app = stand.prepared(added=added)
    with closing(stand.driver(app=app)) as driver:
        for _ in range(2):
            driver.done = False
            driver._target = app.batches[0].ends(stand.topics)
            driver.drive(lambda: False)
            stand.append(1, added)
        epochs = Epochs()
        driver._catch_up(epochs)
    reads = [{r.partition.place.topic: (r.start, r.end) for r in c.opened.division} for c in epochs.kept]
    assert [read.get(added) for read in reads] == [None, (1, 3), (1, 4)]


@pytest.mark.parametrize("due", [True, False])
def test_partitions_that_no_epoch_would_read_stop_the_driver(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, due: bool
) -> None:
    monkeypatch.setattr("falkirk.runtime.epochs.driver.WATCH", 0.0)
    stand.append(2)
    stand.drive()
    stand.topics.grow(stand.source, PARTITIONS + 1)
    if due:
        stand.append(1)
    with closing(stand.driver(until_end=due)) as late, pytest.raises(SourceError, match="partitions were added"):
        late.drive(lambda: False)
    assert len(stand.said) == 3, "no epoch was opened after the first one"


@pytest.mark.slow
@pytest.mark.parametrize("every", [None, "1h"])
def test_a_topic_that_is_gone_stops_the_driver_while_no_epoch_is_due(
    kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: str | None
) -> None:
    monkeypatch.setattr("falkirk.runtime.epochs.driver.WATCH", 0.0)
    monkeypatch.setattr("falkirk.runtime.epochs.driver.MISSING", 0.5)
    stand = Stand(kafka, topic_prefix, tmp_path, every=every)
    stand.append(2)
    stand.drive()
    stand.topics.delete([stand.source])
    deadline = time.monotonic() + PATIENCE_S
    with closing(stand.driver(until_end=False)) as late, pytest.raises(SourceError, match="is gone"):
        late.drive(lambda: time.monotonic() > deadline)


def trim(stand: Stand, offset: int) -> None:
    """Retention passes over the first records of each partition."""
    assert stand.topics.trim({TopicPartition(stand.source, p): Offset(offset) for p in range(PARTITIONS)})


def test_records_that_are_deleted_before_an_epoch_reads_them_stop_the_part_until_a_person_leaves_them_out(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    stand = Stand(kafka, topic_prefix, tmp_path, history="new")
    stand.append(4)
    stand.drive()
    stand.append(8)
    trim(stand, 4)  # each partition has 6 records, of which an epoch has read 2
    with closing(stand.driver()) as driver, pytest.raises(SourceError, match="'totals' read them: 4 offsets") as caught:
        driver.drive(lambda: False)
    assert caught.value.where == f"{stand.source}[0] offsets 2 to 3, {stand.source}[1] offsets 2 to 3"
    assert f"falkirk epoch {stand.app_name} totals --skip-deleted" in caught.value.hint
    assert len(stand.said) == 3, "no epoch is opened that could never be completed"
    found = {finding.what: finding for finding in check(stand.app.plan, stand.settings)}
    assert (found["positions"].ok, "read them: 4 offsets" in found["positions"].words) == (False, True)

    command = ["epoch", stand.app_name, "totals", "--skip-deleted", "--brokers", kafka]
    said = CliRunner().invoke(falkirk, command)
    assert (said.exit_code, f"{stand.source}[1] offsets 2 to 3 are left out" in said.output) == (0, True), said.output
    assert "4 offsets left out, as epoch 1 of totals" in said.output
    stand.drive()
    assert stand.values() == [b"%d %d" % (n, i) for n in (4, 4) for i in range(3)] * PARTITIONS, "4 records are left"
    said = CliRunner().invoke(falkirk, command)
    assert (said.exit_code, "nothing is deleted" in said.output) == (0, True), said.output


def test_an_epoch_that_can_never_be_completed_says_so_before_it_is_computed(stand: Stand) -> None:
    stand.append(4)
    with closing(stand.driver(until_end=False)) as driver:
        epochs = Epochs()
        driver._catch_up(epochs)
        driver._open(epochs)
        trim(stand, 1)
        with pytest.raises(SourceError, match="records that epoch 0 is to read were deleted: 2 offsets") as caught:
            driver.drive(lambda: False)
    assert f"falkirk epoch {stand.app_name} totals --abandon" in caught.value.hint
    assert not stand.compute.runs


def test_who_follows_an_epoch_is_told_that_nobody_drives_it_any_more_and_why(
    stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    def heard() -> CurrentRequests:
        return current_requests(stand.settings.cluster(), stand.app.control)

    driving = Driving(stand.app_name, stand.topics, None)
    driving.check(heard())
    assert f"no driver of {stand.app_name} is running" in capsys.readouterr().err
    with suppress(SourceError), recorded_end(stand.settings.cluster(), stand.app.control):
        raise SourceError("bids is gone")
    driving._look_at = 0.0
    with pytest.raises(SourceError, match="has ended, and the epoch waits: bids is gone"):
        driving.check(heard())
    assert not capsys.readouterr().err, "one warning is enough"
    Driving(stand.app_name, stand.topics, heard().ended).check(heard())  # that was before


def test_an_open_epoch_whose_topic_is_gone_is_not_waited_for(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("falkirk.runtime.epochs.driver.MISSING", 0.5)
    stand.append(4)
    with closing(stand.driver(until_end=False)) as driver:
        epochs = Epochs()
        driver._catch_up(epochs)
        driver._open(epochs)
        stand.topics.delete([stand.source])
        assert epochs.opened is not None
        driver._check_kept(epochs.opened)  # who reads it says that it is gone
