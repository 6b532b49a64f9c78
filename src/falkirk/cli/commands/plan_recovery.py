"""`falkirk plan --if-dies`: what a recovery would do, and how long it would take."""

from __future__ import annotations

import sys

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.text import Text

from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import StateError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.inspect.failure import Answer, TaskRecovery, head
from falkirk.runtime.inspect.recovery import if_dies
from falkirk.runtime.observe.console import table
from falkirk.stream.flow.load import load_flow
from falkirk.wording import counted

UNITS = ("B", "kB", "MB", "GB", "TB")


def plan_recovery(target: str, dies: str, settings: Settings, *, as_json: bool) -> None:
    """Print it."""
    found = if_dies(app_of(target, settings.prefix), dies, settings, Topics(settings.cluster()))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        console = Console(highlight=False)
        # Nothing is cut off, unless the output is a terminal.
        (console if console.is_terminal else Console(highlight=False, width=200)).print(shown(found))
    if any(task.begins_with is None for task in found.tasks):
        sys.exit(StateError.exit_code)


def app_of(target: str, prefix: str) -> str:
    """The app that is meant: its name, or a flow of that name. The names of apps have no colon and no file's ending.

    >>> app_of("auction-stats", "falkirk")
    'auction-stats'
    """
    is_flow = ":" in target or target.endswith((".py", ".sql"))
    return load_flow(target).plan(prefix).app if is_flow else target


def shown(found: Answer) -> RenderableType:
    """The plan for people."""
    rows = table(
        "task", "regime", "goes back to", "begins with", "replays", "name:6", "fetch:6", "open:6", "replay:6", "runs after:10"
    )  # fmt: skip
    for task in found.tasks:
        if task.begins_with is None:
            rows.add_row(
                Text(task.task, "bold"), task.regime, Text("cannot recover", "red"), "nothing is left that leads on"
            )
            continue
        rows.add_row(
            Text(task.task, "bold"), task.regime, _step(task.back_to), _begins(task), _replays(task),
            *(_seconds(task, part) for part in ("name", "fetch", "open", "replay")), f"{task.runs_s:.2f} s",
        )  # fmt: skip
    parts: list[RenderableType] = [*map(Text, head(found)), "", rows]
    if found.also:
        listed = ", ".join(f"{back.task} to {_step(back.back_to)}" for back in found.also)
        parts += ["", Text(f"{counted(len(found.also), 'other task')} would have to go back, too: {listed}", "red")]
    if any(task.presumed for task in found.tasks):
        parts += ["", Text("* not measured yet: presumed, until a take-over shows it", "dim")]
    if any(task.begins_with is None for task in found.tasks):
        parts += ["", Text(f"to do: {HINT}", "yellow")]
    return Group(*parts)


HINT = (
    "run the workers with --checkpoints and a URL that all hosts reach: their versions are on their own disks, and the steps "
    "before these are deleted"
)


def _step(step: int) -> str:
    return f"step {step:,}" if step >= 0 else "its beginning"


def _begins(task: TaskRecovery) -> str:
    if task.begins_with == "local":
        return "the store on its host"
    if task.begins_with == "copied":
        return f"version of {_step(task.version if task.version is not None else -1)}, {_size(task.bytes)}"
    return "an empty store" if task.log else "the step records"


def _replays(task: TaskRecovery) -> str:
    """What is replayed, from where.

    >>> from falkirk.runtime.inspect.failure import Work
    >>> task = TaskRecovery("s/0", "lazy", None, 95, "copied", 70, 0, 25, 4_000, "steps 71..95", Work(0, 0, 0, 0), 0, [])
    >>> _replays(task), _replays(msgspec.structs.replace(task, steps=0, records=300, log="log[0] 20..320"))
    ('steps 71..95: 4,000 records', 'its changelog, 20..320: up to 300 records')
    """
    if not task.log:
        return "nothing"
    if task.steps:
        return f"{task.log}: {counted(task.records, 'record')}"
    offsets = task.log.rpartition(" ")[2]  # the topic's name is long, and follows from the task
    return f"its changelog, {offsets}: up to {counted(task.records, 'record')}"


def _seconds(task: TaskRecovery, part: str) -> str:
    value = getattr(task.work, part)
    return f"{value:.2f}{'*' if part in task.presumed else ' '}" if value else "– "


def _size(size: float) -> str:
    """Bytes in short form.

    >>> _size(17), _size(5_200_000)
    ('17 B', '5.2 MB')
    """
    unit = 0
    while size >= 1000 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.1f} {UNITS[unit]}" if unit else f"{size:.0f} {UNITS[0]}"
