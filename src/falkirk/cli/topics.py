"""`falkirk topics`: what an app needs from a cluster, for its administrators."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
import msgspec

from falkirk.cli.options import cluster_options, cluster_settings, rebuild_option, replication_option
from falkirk.connectors.kafka.acls import Acl, grant
from falkirk.connectors.kafka.config import Cluster
from falkirk.connectors.kafka.topics import Topics
from falkirk.errors import ConfigError
from falkirk.runtime.needs import NeededTopic, Right, needed_topics, rights
from falkirk.runtime.rebuild.beside import shadow_plan
from falkirk.runtime.survey import resolved
from falkirk.stream.load import load_flow


@click.command()
@click.argument("target", metavar="APP:FLOW")
@cluster_options
@replication_option
@rebuild_option
@click.option("--acls", is_flag=True, help="The rights that the app's user needs, too.")
@click.option("--user", metavar="NAME", help="The app's user, for --acls: a name, or a principal (User:CN=app).")
@click.option("--backfill", is_flag=True, help="The topic of a backfill, too.")
@click.option("--create", is_flag=True, help="Make what is missing, as this command's own user.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, as described above.")
def topics(
    target: str, replication: int, acls: bool, user: str | None, backfill: bool, create: bool, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Print the topics that a flow needs and that are not there, as commands for an administrator; or make them.

    An app makes its topics by itself, where it may. For clusters where only administrators make topics:

    \b
    falkirk topics app:flow --brokers broker-1:9092 --replication 3 --acls --user shop
    falkirk topics app:flow --brokers broker-1:9092 --create

    With --rebuild ID it prints what `falkirk rebuild` of these operators needs as well.

    \b
    --json prints one object.
      topics[]    name, role, partitions, exists, config (of those that are to be made)
      acls[]      resource, name, prefixed, operations, reason, cluster (of those in another); with --acls
    """
    if acls and not user:
        raise ConfigError("whose rights are they?", where="--acls", hint="name the app's user with --user NAME")
    plan = load_flow(target).plan(options["prefix"])
    settings = cluster_settings(**options)
    cluster = Topics(settings.cluster())
    needed = needed_topics(plan, settings, cluster, backfill=backfill)
    wanted = rights(resolved(plan, settings, cluster), settings) if acls else []
    if settings.rebuild:
        beside, alone = shadow_plan(plan, settings, cluster), replace(settings, rebuild=())
        needed += [topic for topic in needed_topics(beside, alone, cluster) if topic not in needed]
        if acls:
            # Its topics and transactions are named like the app's.
            wanted += [right for right in rights(beside, alone) if not right.prefixed and right not in wanted]
    principal = user if user and ":" in user else f"User:{user}"
    if create:
        for topic in [t for t in needed if not t.exists]:
            cluster.create(topic.name, topic.partitions, replication, topic.config)
            click.echo(f"made topic {topic.name}", err=True)
        if wanted:
            for name in sorted({r.cluster for r in wanted}):
                asked = [
                    Acl(principal, r.resource, r.name, r.prefixed, o)
                    for r in wanted
                    if r.cluster == name
                    for o in r.operations
                ]
                grant(settings.cluster().of(name), asked)
            click.echo(f"granted {principal} the rights of {plan.app}", err=True)
    elif not as_json:
        for line in commands(needed, wanted, principal, settings.cluster(), replication):
            click.echo(line)
    if as_json:
        shown = {"topics": needed, **({"acls": wanted} if acls else {})}
        click.echo(msgspec.json.format(msgspec.json.encode(shown), indent=2))


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
                cluster.brokers,
                "--create",
                "--if-not-exists",
                "--topic",
                topic.name,
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
