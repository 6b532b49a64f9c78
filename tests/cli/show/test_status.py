"""What `falkirk status` shows of what it has found."""

from __future__ import annotations

from rich.console import Console

from falkirk.cli.commands.status import shown
from falkirk.runtime.inspect.status import HotKeyStatus, StageStatus, Status, TaskStatus, WatermarkStatus, WorkerStatus


def test_a_hot_key_is_named_with_its_operator_task_and_share() -> None:
    hot = [HotKeyStatus("stats", "auction=7", 0.61)]
    tasks = [
        TaskStatus("stats/0", None, None, None, 1, 0.0, None, None, 0, []),
        TaskStatus("stats/1", None, None, "running", 1, 0.0, None, None, 0, [], hot=hot),
    ]
    stages = [StageStatus("stats", "eager", True, 2, 2, 0, 0.0)]
    console = Console(width=200)
    with console.capture() as text:
        console.print(shown(Status("app", "running", "app", 1, "1", 0, stages, tasks, [])))
    lines = [line.strip() for line in text.get().splitlines()]
    assert lines.count("hot key in stats/1: auction=7 has 61% of the rows of stats") == 1
    assert "hot key in stats/0" not in text.get()


def test_the_least_watermark_of_a_source_is_shown_with_what_holds_it_back() -> None:
    marks = [[("bids", 5_000, "bids[0]")], [("bids", 4_000, "bids[1]")], [("asks", None, ""), ("bids", 9_000, "")]]
    tasks = [
        TaskStatus(
            f"s/{n}", None, None, "running", 1, 0.0, None, None, 0, [], watermarks=[WatermarkStatus(*m) for m in some]
        )
        for n, some in enumerate(marks)
    ]
    console = Console(width=200)
    with console.capture() as text:
        stages = [StageStatus("s", "eager", True, 3, 3, 0, 0.0)]
        console.print(shown(Status("app", "running", "app", 1, "1", 0, stages, tasks, [])))
    lines = [line.strip() for line in text.get().splitlines() if "watermark" in line]
    assert len(lines) == 2
    assert lines[0].startswith("watermark of bids: 1970-01-01 00:00:04 UTC, ")
    assert lines[0].endswith(" ago, held back by bids[1]")
    assert lines[1] == "watermark of asks: none yet, all partitions are idle"


def test_where_workers_answer_for_their_state_is_shown() -> None:
    workers = [WorkerStatus(f"app.w-{n}", "h", 1, True, 1, query=url) for n, url in enumerate(["http://h:9200", ""])]
    stages = [StageStatus("s", "eager", True, 2, 2, 0, 0.0)]
    console = Console(width=200)
    with console.capture() as text:
        console.print(shown(Status("app", "running", "app", 1, "1", 0, stages, [], workers)))
    assert [line.strip() for line in text.get().splitlines() if "state at" in line] == ["state at w-0  http://h:9200"]


def test_on_a_narrow_screen_no_figure_and_no_name_is_cut_off() -> None:
    name = "a-stage-with-a-long-name.on.customer"
    tasks = [TaskStatus(f"{name}/7", "app.0123456789ab-3", "h", "running", 1_234, 0.0, 5, 1.0, 98_765, [])]
    stages = [StageStatus(name, "eager", True, 1, 1, 0, 0.0)]
    console = Console(width=100)
    with console.capture() as text:
        console.print(shown(Status("app", "running", "app", 1, "1", 0, stages, tasks, [])))
    assert "…" not in text.get()
    assert all(word in text.get() for word in ("98,765", "0123456789ab-3", "running", "1,234", "/7"))


def test_a_task_without_a_report_that_counts_is_not_shown_as_running() -> None:
    tasks = [
        TaskStatus("s/0", "app.w-0", "h", "running", 1, 0.0, None, None, 0, []),
        TaskStatus("s/1", "app.w-1", "h", None, 1, 0.0, None, None, 0, []),
        TaskStatus("s/2", "app.w-2", "h", None, 1, 0.0, None, None, 0, [], silent_s=42.0),
    ]
    stages = [StageStatus("s", "eager", True, 3, 1, 0, 0.0)]
    console = Console(width=200)
    with console.capture() as text:
        console.print(shown(Status("app", "recovering", "app", 1, "1", 0, stages, tasks, [])))
    lines = {line.split()[0]: line for line in text.get().splitlines() if line.strip().startswith("s/")}
    assert ("running" in lines["s/0"], "running" in lines["s/1"], "running" in lines["s/2"]) == (True, False, False)
    assert "recovering" in lines["s/1"]
    assert "silent for 42.0 s" in lines["s/2"]
    with console.capture() as text:
        console.print(shown(Status("app", "stopped", "app", 1, "1", 0, stages, tasks[1:2], [])))
    assert "recovering" not in text.get()
