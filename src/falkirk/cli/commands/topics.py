"""`falkirk topics`: what an app needs from a cluster: printed, or created."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import msgspec

from falkirk.checkpoint.ids import cluster_of, name_of
from falkirk.cli.options import cluster_options, cluster_settings, rebuild_option, replication_option
from falkirk.connectors.kafka.admin.acls import Acl, grant
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.errors import ConfigError
from falkirk.runtime.app.needs import NeededTopic, Right, needed_topics, rights
from falkirk.runtime.app.shadow_app import shadow_plan
from falkirk.runtime.app.sources import PARTITIONS, missing_sources
from falkirk.runtime.layout.preflight import resolved
from falkirk.stream.flow.load import load_flow
from falkirk.stream.stages.plan import Plan
from falkirk.wording import counted


@click.command()
@click.argument("target", metavar="APP:FLOW")
@cluster_options
@replication_option
@rebuild_option
@click.option("--acls", is_flag=True, help="Also print or grant the permissions that the app's user needs.")
@click.option("--user", metavar="NAME", help="With --acls: the app's user, as a name or a principal (User:CN=app).")
@click.option("--serve", is_flag=True, help="With --acls: also what gateways need that serve sinks to subscribers.")
@click.option("--backfill", is_flag=True, help="Also the topic of a backfill.")
@click.option("--create", is_flag=True, help="Create what is missing, with the permissions of this command's own user.")
@click.option("--sources", is_flag=True, help="Also the missing topics that the flow reads: its sources and tables.")
@click.option(
    "--partitions",
    type=click.IntRange(1),
    help="With --sources: how many each of them gets. The app gets as many "
    f"tasks, and keeps that number.  [default: {PARTITIONS}]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, as described above.")
def topics(
    target: str, replication: int, acls: bool, user: str | None, serve: bool, backfill: bool, create: bool, sources: bool,
    partitions: int | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Print the missing topics of a flow as commands for an administrator, or create them.

    The topics that a flow reads must exist before it runs. --sources creates them, empty:

    \b
    falkirk topics app:flow --brokers broker-1:9092 --create --sources --partitions 8

    An app creates its other topics itself, if it has the right. On a cluster where only administrators create topics:

    \b
    falkirk topics app:flow --brokers broker-1:9092 --replication 3 --acls --user shop
    falkirk topics app:flow --brokers broker-1:9092 --create

    With --rebuild ID it includes what `falkirk rebuild` of these operators needs.

    \b
    --json prints one object.
      topics[]    name, role, partitions, exists, config (of missing ones)
      acls[]      resource, name, prefixed, operations, reason, cluster (if it is another one); with --acls
    """
    if acls and not user:
        raise ConfigError("--acls needs the name of the app's user", where="--acls", hint="add --user NAME")
    if serve and not acls:
        raise ConfigError("--serve is about permissions", where="--serve", hint="add --acls --user NAME")
    plan = load_flow(target).plan(options["prefix"])
    settings = cluster_settings(**options)
    cluster = Topics(settings.cluster())
    principal = user if user and ":" in user else f"User:{user}"
    show = Show(principal, settings.cluster(), replication, as_json=as_json)
    if sources:
        absent = _absent_sources(plan, cluster, partitions or PARTITIONS)
        if absent and not create:
            show(absent, [])
            click.echo("the app's own topics follow from these: once they exist, run this command again", err=True)
            return
        _create(absent, cluster, replication)
    elif partitions is not None:
        raise ConfigError("--partitions is for source topics", where="--partitions", hint="add --sources")
    needed = needed_topics(plan, settings, cluster, backfill=backfill)
    wanted = rights(resolved(plan, settings, cluster), settings, serve=serve) if acls else []
    if settings.rebuild:
        beside, alone = shadow_plan(plan, settings, cluster), replace(settings, rebuild=())
        needed += [topic for topic in needed_topics(beside, alone, cluster) if topic not in needed]
        if acls:
            # Its topics and transactions are named like the app's.
            wanted += [right for right in rights(beside, alone) if not right.prefixed and right not in wanted]
    if create:
        _create([topic for topic in needed if not topic.exists], cluster, replication)
        if wanted:
            _grant(wanted, principal, settings.cluster())
            click.echo(f"granted {principal} the rights of {plan.app}", err=True)
    if as_json or not create:
        show(needed, wanted, acls=acls)


def _absent_sources(plan: Plan, topics: Topics, partitions: int) -> list[NeededTopic]:
    missing = missing_sources(plan, topics)
    return [NeededTopic(name, "source", partitions, False, config) for name, config in missing.items()]


def _create(missing: Sequence[NeededTopic], topics: Topics, replication: int) -> None:
    for topic in missing:
        there = topics.of(cluster_of(topic.name))
        there.create(name_of(topic.name), topic.partitions, replication, topic.config)
        click.echo(f"created topic {topic.name}, {counted(topic.partitions, 'partition')}", err=True)


def _grant(wanted: Sequence[Right], principal: str, cluster: Cluster) -> None:
    for name in sorted({right.cluster for right in wanted}):
        rights = [right for right in wanted if right.cluster == name]
        grant(
            cluster.of(name), [Acl(principal, r.resource, r.name, r.prefixed, o) for r in rights for o in r.operations]
        )


@dataclass(frozen=True, slots=True)
class Show:
    """Prints what is needed, as commands or as JSON."""

    principal: str
    cluster: Cluster
    replication: int
    as_json: bool

    def __call__(self, needed: Sequence[NeededTopic], wanted: Sequence[Right], *, acls: bool = False) -> None:
        """`acls`: rights were asked for, even if there are none."""
        if self.as_json:
            shown = {"topics": needed, **({"acls": wanted} if acls else {})}
            click.echo(msgspec.json.format(msgspec.json.encode(shown), indent=2))
            return
        for line in commands(needed, wanted, self.principal, self.cluster, self.replication):
            click.echo(line)


def commands(
    needed: Sequence[NeededTopic], wanted: Sequence[Right], principal: str, cluster: Cluster, replication: int
) -> list[str]:
    """For Kafka's own tools.

    >>> topic = NeededTopic("falkirk.shop.steps", "steps", 4, False, {"cleanup.policy": "delete"})
    >>> right = Right("group", "shop", False, ("READ", "DESCRIBE_CONFIGS"), "the workers' group")
    >>> print(*commands([topic], [right], "User:app", Cluster("broker-1:9092"), 3), sep="\\n")
    kafka-topics.sh --bootstrap-server broker-1:9092 --create --if-not-exists --topic falkirk.shop.steps --partitions 4 \
--replication-factor 3 --config cleanup.policy=delete
    kafka-acls.sh --bootstrap-server broker-1:9092 --add --allow-principal User:app --operation Read \
--operation DescribeConfigs --group shop
    """
    found = []
    for topic in needed:
        if not topic.exists:
            tool = [
                "kafka-topics.sh",
                "--bootstrap-server",
                cluster.of(cluster_of(topic.name)).brokers,
                "--create",
                "--if-not-exists",
                "--topic",
                name_of(topic.name),
            ]
            tool += ["--partitions", str(topic.partitions)]
            tool += ["--replication-factor", str(replication)] if replication > 0 else []
            found.append([*tool, *(word for k, v in topic.config.items() for word in ("--config", f"{k}={v}"))])
    for right in wanted:
        tool = [
            "kafka-acls.sh",
            "--bootstrap-server",
            cluster.of(right.cluster).brokers,
            "--add",
            "--allow-principal",
            principal,
        ]
        for operation in right.operations:
            tool += ["--operation", "".join(word.capitalize() for word in operation.split("_"))]
        tool += [f"--{right.resource}", right.name]
        found.append([*tool, *(["--resource-pattern-type", "prefixed"] if right.prefixed else [])])
    return [shlex.join(tool) for tool in found]
