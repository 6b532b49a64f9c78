"""Options that several commands share, and the settings that they make."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from falkirk.durations import parse_duration, parse_size
from falkirk.errors import ConfigError
from falkirk.runtime.settings import Settings
from falkirk.stream.plan import PREFIX

Command = Callable[..., Any]


def _prefix(_: click.Context, __: click.Parameter, prefix: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", prefix):
        raise ConfigError(
            f"{prefix!r} cannot begin a topic's name",
            where="--prefix",
            hint="use up to 100 letters, digits, dots, dashes and underscores",
        )
    return prefix


prefix_option = click.option("--prefix", default=PREFIX, show_default=True, callback=_prefix,
                             help="The app's own topics are called PREFIX.APP.…")  # fmt: skip
"""How the app's own topics are called."""

_CLUSTER = [
    click.option("--brokers", "--bootstrap-server", metavar="HOST:PORT,…", envvar="FALKIRK_BROKERS",
                 help="Kafka's addresses."),
    prefix_option,
    click.option("--set", "client", metavar="KEY=VALUE", multiple=True, help="A librdkafka setting, e.g. "
                 "security.protocol=SASL_SSL. May be given several times."),
]  # fmt: skip

_RUN = [
    click.argument("target", metavar="APP:FLOW"),
    *_CLUSTER,
    click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), default=Path(".falkirk"),
                 envvar="FALKIRK_STATE_DIR", show_default=True, help="Where stores and the worker's identity are kept."),
    click.option("--checkpoints", metavar="URL", default="", help="Where versions are copied to: file://, s3://, gs://, "
                 "az://.  [default: a folder in the state directory]"),
    click.option("--session-timeout", metavar="DURATION", default="10s", show_default=True,
                 help="How long a worker may be silent before others take its tasks."),
    click.option("--replication", type=int, default=-1, help="Replication factor of the topics that the app makes.  "
                 "[default: the broker's]"),
    click.option("--memory", metavar="SIZE", default="256MiB", show_default=True,
                 help="Block cache and write buffers of each worker's stores."),
    click.option("--spark", metavar="MASTER", default="local[*]", show_default=True, envvar="FALKIRK_SPARK",
                 help="Spark's master, for batch parts and --on spark."),
    click.option("--spark-set", "spark_settings", metavar="KEY=VALUE", multiple=True,
                 help="A setting of Spark's. May be given several times."),
    click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning",
                 show_default=True),
]  # fmt: skip


def run_options(command: Command) -> Command:
    """What a flow is run with."""
    return _with(_RUN, command)


def cluster_options(command: Command) -> Command:
    """How a cluster and an app on it are reached."""
    return _with(_CLUSTER, command)


def _with(options: Sequence[Callable[[Command], Command]], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def settings_from(**options: Any) -> Settings:
    """Settings from `run_options`; `executors_state_dir` is that of workers on Spark. Raises ConfigError."""
    return Settings(
        **_reach(options),
        state_dir=str(options["state_dir"]),
        workers=options["workers"],
        session_timeout_ms=int(
            parse_duration(options["session_timeout"], where="--session-timeout").total_seconds() * 1000
        ),
        checkpoints=options["checkpoints"],
        replication=options["replication"],
        cache_bytes=parse_size(options["memory"], where="--memory"),
        spark=options["spark"],
        spark_settings=_pairs("--spark-set", options["spark_settings"]),
        executors_state_dir=options.get("executors_state_dir", ""),
        log_level=options["log_level"],
    )


def cluster_settings(**options: Any) -> Settings:
    """Settings from `cluster_options`, for commands that run nothing. Raises ConfigError."""
    return Settings(**_reach(options), state_dir="")


def _reach(options: dict[str, Any]) -> dict[str, Any]:
    brokers, client = options["brokers"], options["client"]
    if not brokers:
        raise ConfigError(
            "no brokers given",
            hint="name your cluster with --brokers HOST:PORT (or FALKIRK_BROKERS); to try a flow on this machine alone, with "
            "a Kafka that starts by itself: falkirk dev",
        )
    return {"brokers": brokers, "prefix": options["prefix"], "client": _pairs("--set", client)}


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for setting in given:
        key, equals, value = setting.partition("=")
        if not equals:
            example = "security.protocol=SASL_SSL" if option == "--set" else "spark.driver.memory=2g"
            raise ConfigError(f"{option} {setting!r} is no KEY=VALUE", hint=f"for instance {option} {example}")
        pairs[key] = value
    return pairs
