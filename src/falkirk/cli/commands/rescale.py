"""`falkirk rescale`: another number of tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from falkirk.cli.options import replication_option, state_options, state_settings
from falkirk.cli.stopping import half_deleted, interruptible
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import ConfigError
from falkirk.runtime.host.logs import about
from falkirk.runtime.rescale.rescaling import check, look
from falkirk.runtime.rescale.rescaling import rescale as divide
from falkirk.state.shards import SHARDS
from falkirk.stream.flow.load import load_flow


@click.command()
@click.argument("target", metavar="APP:FLOW")
@state_options
@replication_option
@click.option("--tasks", metavar="N", type=click.IntRange(1, SHARDS), help="The number of tasks, for a flow that has no "
              "tasks=, such as a file of SQL.")  # fmt: skip
@click.option("--check", "only_check", is_flag=True, help="Say what would be done, and whether it can be.")
def rescale(target: str, tasks: int | None, only_check: bool, replication: int, **options: Any) -> None:
    """Divide the state of an app among as many tasks as APP:FLOW has now (fk.Flow(…, tasks=8)). It must not be running.

    End it with falkirk drain first: then nothing is on its way between its tasks, and the checkpoint store has the state of
    each. Give the same --checkpoints or --state-dir as to falkirk run. The stages behind an exchange get the new number;
    those that read sources keep theirs. The app then continues where it has ended: no record is read twice, none is skipped.
    The regimes of the stages with state may have changed, too.

    If the command is killed, run it again. Until it has finished, the app cannot run.

    \b
    falkirk drain   auction-stats --brokers broker-1:9092
    falkirk rescale app:flow --brokers broker-1:9092 --checkpoints s3://bucket/app
    falkirk run     app:flow --brokers broker-1:9092 --checkpoints s3://bucket/app

    The exit code is 0 if the app has these tasks, 2 if there is no such app or it is running, 7 if it has not ended cleanly
    or if its state cannot be divided.
    """
    settings = state_settings(**options, replication=replication)
    plan = load_flow(target).plan(settings.prefix)
    if tasks is not None:
        if plan.tasks not in (None, tasks):
            raise ConfigError(
                f"--tasks is {tasks}, and the flow has tasks={plan.tasks}",
                hint="change the flow, and leave out --tasks",
            )
        if not any(stage.scales for stage in plan.stages):
            raise ConfigError(
                f"--tasks {tasks} changes nothing: no stage of the flow is behind an exchange",
                hint="give a source repartition=True, or group by another column than its key",
            )
        plan = replace(plan, tasks=tasks)
    about(app=plan.app)
    topics = Topics(settings.cluster())
    todo = look(plan, settings, topics)
    app = plan.app
    for change in todo.changes:
        click.echo(f"stage {change}")
    if todo.begun is None and todo.changes:
        check(todo, settings, topics)
    if not todo.changes:
        click.echo(f"{app}: its stages have these numbers of tasks, and these regimes")
        if todo.found.known.ending is None:
            return
    if only_check:
        click.echo(f"{app}: can be rescaled; nothing is changed")
        return
    with interruptible(half_deleted("rescale", app, target)):
        divide(todo, settings, topics, lambda what: click.echo(what, err=True))
    click.echo(f"{app}: falkirk run continues where it has ended, with these tasks")
