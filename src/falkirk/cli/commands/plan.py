"""`falkirk plan`: what a changed flow would do to the app that runs under its name, or a failure."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import click
import msgspec

from falkirk.cli.commands.plan_recovery import plan_recovery
from falkirk.cli.main import tell
from falkirk.cli.options import (
    checkpoints_option,
    cluster_options,
    cluster_settings,
    rebuild_option,
    replication_option,
)
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import ConfigError
from falkirk.runtime.app.app import prepare
from falkirk.runtime.app.changes import BesideChange, Changes, Fate, changes
from falkirk.stream.flow.load import load_flow
from falkirk.wording import counted

SIGN: dict[Fate, tuple[str, str]] = {
    "kept": ("=", ""), "new": ("+", "green"), "migrated": ("→", "cyan"), "rebuilt": ("↻", "cyan"), "dropped": ("−", "red"),
}  # fmt: skip


@click.command()
@click.argument("target", metavar="APP:FLOW")
@cluster_options
@replication_option
@rebuild_option
@click.option("--apply", is_flag=True, help="Record the change, and create missing topics.")
@click.option("--drop", "losing", metavar="ID", multiple=True, help="Allow that the state of this operator is deleted. "
              "Can be repeated.")  # fmt: skip
@click.option("--if-dies", "dies", metavar="HOST|TASK", help="Show the recovery if this host, worker, or the worker of this "
              "task died now. Nothing happens to it.")  # fmt: skip
@checkpoints_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON, as described above. `refused` is null if falkirk run would accept the flow.",
)
def plan(
    target: str, apply: bool, losing: tuple[str, ...], dies: str | None, checkpoints: str, as_json: bool, **options: Any
) -> None:
    """Compare APP:FLOW with its app, and show what is kept (=), new (+), migrated (→), rebuilt (↻) and dropped (−). Changes
    nothing, without --apply.

    `falkirk run` itself makes all changes that lose no state. An operator with the same id, version and schema keeps its
    state; with another schema, its migrate= converts the state first. A new operator in an existing stage starts with empty
    state and sees records from then on. A new stage starts where start= of its sources says. A change that would lose state
    is refused. --drop allows it; --rebuild rebuilds the state from the records that the inputs still have:

    \b
    falkirk plan app:flow --brokers broker-1:9092
    falkirk plan app:flow --brokers broker-1:9092 --rebuild totals
    falkirk plan app:flow --brokers broker-1:9092 --apply --drop daily-totals

    When a new stage is recorded, workers of the old flow end and get no tasks any more: restart them with the new flow. The
    exit code is 0 if `falkirk run` would accept the flow, else the code of its error.

    With --if-dies, plan a recovery instead. APP alone is enough then. The plan says which tasks go back to which step, with
    what each begins, what it replays, and the predicted time, from what take-overs have taken so far. A * marks times with a
    part that no take-over has shown yet: it is presumed.

    \b
    falkirk plan auction-stats --if-dies broker-2.example --brokers broker-1:9092
    falkirk plan auction-stats --if-dies stats/3 --json --brokers broker-1:9092

    \b
    --json then prints one object:
      app, dies, kind ("host" or "worker"), workers[] (that end), takers[] (workers that take the tasks over)
      noticed_s, seconds      until the failure is noticed, at most; and from then until the tasks run again
      tasks[]                 task, regime, worker, back_to (a step; -1: its beginning), begins_with ("local": the store on
                              its host, "copied": a version in the checkpoint store, "nothing"; null: it cannot recover),
                              version (the step of that state), bytes (to fetch), steps (to run again), records (to read
                              again), log (where these are), work: name, open, fetch, replay (seconds; a version is
                              fetched while the task is named), runs_s, presumed[]: parts of work
      also[]                  other tasks that must go back: task, back_to; empty while all edges are topics
      stay                    the number of tasks that are not touched
    The exit code is 0, or 7 if a task could not recover.
    """
    if dies is not None:
        if apply or losing or options["rebuild"]:
            raise ConfigError("--if-dies shows a recovery: it goes with none of --apply, --drop and --rebuild")
        plan_recovery(target, dies, replace(cluster_settings(**options), checkpoints=checkpoints), as_json=as_json)
        return
    settings = cluster_settings(**options)
    topics = Topics(settings.cluster())
    flow_plan = load_flow(target).plan(settings.prefix)
    found = changes(flow_plan, settings, topics, losing)
    if as_json:
        refused = None if found.refused is None else str(found.refused)
        shown = {
            name: getattr(found, name) for name in ("app", "layout", "stages", "topics", "grown", "left", "beside")
        }
        click.echo(msgspec.json.format(msgspec.json.encode({**shown, "refused": refused}), indent=2))
    else:
        for line in _lines(found, settings.rebuild):
            click.echo(line)
    dropped = {o.operator for stage in found.stages for o in stage.operators if o.fate == "dropped"}
    for id_ in losing:
        if id_ not in dropped:
            click.echo(f"--drop {id_}: this flow loses no state of an operator with this id", err=True)
    if found.refused is not None:
        tell(found.refused)
        sys.exit(found.refused.exit_code)
    if apply:
        app = prepare(flow_plan, settings, topics, losing=losing)
        click.echo(f"recorded: layout {app.recorded.number}", err=True)


def _lines(found: Changes, rebuild: Sequence[str] = ()) -> Iterator[str]:
    yield f"app {found.app}: {f'layout {found.layout}' if found.layout else 'never ran'}" + (
        "" if found.any else ", and nothing changes"
    )
    for stage in found.stages:
        yield ""
        yield _signed(
            stage.fate,
            f"stage {stage.stage}: {stage.regime}, {counted(stage.tasks, 'task')}, reads {', '.join(stage.reads)}",
        )
        for operator in stage.operators:
            late = stage.fate == "kept" and operator.fate == "new"
            note = " (begins empty, with what is read from now on)" if late else ""
            if operator.operator in rebuild and operator.fate == "kept":
                note = " (as it was: to rebuild it all the same, raise its version=)"
            yield "  " + _signed(operator.fate, f"{operator.operator} {operator.state}{note}")
            if operator.before is not None:
                yield f"      from {operator.before}"
    if found.topics or found.grown or found.left:
        yield ""
    for topic, partitions in found.topics.items():
        yield _signed("new", f"topic {topic}: {counted(partitions, 'partition')}")
    for topic, more in found.grown.items():
        yield _signed("new", f"topic {topic}: {counted(more, 'more partition')}, to be read from the first record")
    for topic in found.left:
        yield _signed("dropped", f"topic {topic}: no longer used; it stays, for you to delete")
    if found.beside is not None:
        yield ""
        yield from _beside(found.beside)


def _beside(beside: BesideChange) -> Iterator[str]:
    if beside.takes:
        yield _signed("rebuilt", f"app {beside.app}: what it has made of stage {', '.join(beside.takes)} is taken over")
    elif beside.taken:
        yield _signed(
            "dropped",
            f"app {beside.app}: taken over by stage {', '.join(beside.taken)}; when no task is rebuilding any more, "
            f"falkirk delete {beside.app}",
        )
    else:
        yield _signed("kept", f"app {beside.app}: rebuilds beside this one; nothing of it would be taken over")


def _signed(fate: Fate, text: str) -> str:
    sign, colour = SIGN[fate]
    return click.style(f"{sign} {text}", fg=colour or None)
