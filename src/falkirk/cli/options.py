"""Options that several commands share, and the settings that they make."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from falkirk.checkpoint.ids import CLUSTER
from falkirk.cli.config_file import CLIENT, NAMES, USUAL, ConfigFile, check_environment, read
from falkirk.cli.gateway_options import gateway_options
from falkirk.cli.setting import DURATION, KNOWN, Command, Decorator, Setting, absolute, setting
from falkirk.durations import parse_size
from falkirk.errors import ConfigError
from falkirk.runtime.host.listening import check_query
from falkirk.runtime.host.logs import use
from falkirk.runtime.host.settings import Settings
from falkirk.stream.definition.names import PREFIX

_MILLISECOND = timedelta(milliseconds=1)


def _configured(usual: Path | None) -> Callable[[click.Context, click.Parameter, Path | None], ConfigFile]:
    """Reads the settings before any other option is processed."""

    def configure(context: click.Context, _: click.Parameter, path: Path | None) -> ConfigFile:
        if context.resilient_parsing:
            return ConfigFile()
        check_environment(KNOWN)
        if path is None and usual is not None and usual.exists():
            path = usual
        given = ConfigFile() if path is None else read(path, KNOWN)
        options = {option.key: option.name for option in context.command.params if isinstance(option, Setting)}
        context.default_map = {name: given.options[key] for key, name in options.items() if key in given.options}
        return given

    return configure


def config(usual: Path | None = USUAL) -> Decorator:
    """Where settings are read from; `usual` is the default."""
    default = f"  [default: {usual}, if it is there]" if usual is not None else ""
    return click.option(
        "--config", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), envvar="FALKIRK_CONFIG",
        is_eager=True, callback=_configured(usual), help="Settings file: options by their long names (workers = 4), and "
        "tables [kafka], [spark] and [cluster.NAME]. Environment variables (FALKIRK_WORKERS=4) and options on the command "
        f"line override it.{default}",
    )  # fmt: skip


def _prefix(_: click.Context, __: click.Parameter, prefix: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", prefix):
        raise ConfigError(
            f"{prefix!r} cannot begin a topic's name",
            where="--prefix",
            hint="use up to 100 letters, digits, dots, dashes and underscores",
        )
    return prefix


def _traces(_: click.Context, __: click.Parameter, url: str) -> str:
    if url:
        from falkirk.runtime.observe.traces import check_place

        check_place(url)
    return url


def _log_format(_: click.Context, __: click.Parameter, form: str) -> str:
    use(form)  # errors before anything runs are printed in this form, too
    return form


prefix_option = setting("--prefix", default=PREFIX, show_default=True, callback=_prefix,
                        help="Prefix of the names of the app's own topics: PREFIX.APP.…")  # fmt: skip
"""The names of the app's own topics."""

replication_option = setting("--replication", type=int, default=-1, help="Replication factor of the topics that the app "
                             "creates.  [default: the broker's]")  # fmt: skip
workers_option = setting("--workers", type=click.IntRange(1, 256), default=1, show_default=True,
                         help="Number of worker processes on this host, or on Spark.")  # fmt: skip
slot_option = setting("--slot", type=click.IntRange(0, 255), default=0, show_default=True,
                      help="Number of this worker among those of its state directory.")  # fmt: skip
until_option = setting(
    "--until", type=click.Choice(["end"]), help="Stop when all records that are in the sources now are processed."
)
http_option = setting("--http", metavar="[HOST:]PORT", default="", help="Serve /metrics (Prometheus), /live and /ready "
                      "at this address; without a host, on loopback.  [default: off]")  # fmt: skip
_query_options = [
    setting("--query", metavar="[HOST:]PORT", default="", help="Answer questions about the state of running tasks at this "
            "address; without a host, on loopback. Worker n of this host takes the n-th port after it; port 0 is a free "
            "one.  [default: off]"),
    setting("--query-token-file", metavar="FILE", default="", help="The file with the token that questions about state must "
            "have. All workers of the app need the same one.  [default: none: then --query must be on loopback]"),
]  # fmt: skip


def query_options(command: Command) -> Command:
    """Where workers answer questions about their state."""
    return _with(_query_options, command)


listen_options = gateway_options("")
"""A gateway that a run starts."""

traces_option = setting("--traces", metavar="URL", default="", callback=_traces, help="Send a span for each step to "
                        "this OpenTelemetry collector, by OTLP over HTTP: http://collector:4318.  [default: the value of "
                        "OTEL_EXPORTER_OTLP_ENDPOINT, or off]")  # fmt: skip
place_option = setting("--on", "place", type=click.Choice(["spark"]), help="Run the workers on Spark's executors, one per "
                       "task slot.  [default: on this host]")  # fmt: skip

_CLUSTER: list[Decorator] = [
    setting("--brokers", "--bootstrap-server", metavar="HOST:PORT,…", help="Addresses of Kafka brokers."),
    prefix_option,
    click.option("--set", "client", metavar="KEY=VALUE", multiple=True, help="A librdkafka setting, for example "
                 "security.protocol=SASL_SSL. Can be repeated. Other users of the host can see command lines: put secrets "
                 f"into the environment ({CLIENT}SASL_PASSWORD), or into a file that the settings name."),
    click.option("--cluster", "clusters", metavar="NAME=HOST:PORT,…", multiple=True, help="Address of another cluster "
                 'that the flow reads from: --cluster sales=sales-1:9092 for source("bids", cluster="sales"). Can be '
                 "repeated. Its security settings belong into the table [cluster.sales.kafka] of the settings file."),
]  # fmt: skip

_STATE: list[Decorator] = [
    setting("--state-dir", type=click.Path(file_okay=False, path_type=Path), default=Path(".falkirk"),
            show_default=True, help="Directory for state and the worker's identity."),
    setting("--checkpoints", metavar="URL", default="", help="URL that versions of the state are copied to: "
            "file://, s3://, gs://, az://.  [default: a folder in the state directory]"),
]  # fmt: skip

checkpoints_option = _STATE[1]
"""Where versions are copied to."""

rebuild_option = click.option(
    "--rebuild", metavar="ID", multiple=True, help="Rebuild the state of this changed operator from the records that its "
    "inputs still have. Can be repeated. Once the state is rebuilt, the option has no effect."
)  # fmt: skip

_WORK: list[Decorator] = [
    setting("--session-timeout", type=DURATION, default="10s", show_default=True,
            help="How long a worker may be silent before other workers take its tasks."),
    setting("--clock-bound", type=DURATION, default="1m", show_default=True,
            help="How far this host's clock may differ from the broker's. Beyond that, its workers take no tasks."),
    replication_option,
    setting("--memory", metavar="SIZE", default="256MiB", show_default=True,
            help="Memory of each worker for block cache and write buffers of its state."),
    setting("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning",
            show_default=True, help="The least severe messages that are logged."),
    setting("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, callback=_log_format,
            help="Format of standard error. json: one JSON object per line."),
]  # fmt: skip

KEPT = "10m"
"""For how long `falkirk dev` keeps steps: long enough to ask `falkirk why` of what was just written."""


def _run(keep: str | None = None) -> list[Decorator]:
    """The options for running a flow; `keep` is the default of --keep-steps."""
    return [
        click.argument("target", metavar="APP:FLOW"),
        *_CLUSTER,
        *_STATE,
        rebuild_option,
        setting("--keep-steps", type=DURATION, default=keep, help="How long to keep step records that no task needs any "
                f"more. falkirk why reads them.  [default: {keep or 'not at all'}]"),
        setting("--on-divergence", type=click.Choice(["stop", "correct"]), default="stop", show_default=True,
                help="What to do if changed code, which runs recorded steps of a lazy task again after a crash, gives "
                "other output than these steps published. stop: end with an error. correct: publish the difference and "
                "continue."),
        setting("--spark", metavar="MASTER", default="local[*]", show_default=True,
                help="Spark master, for batch parts and --on spark."),
        click.option("--spark-set", "spark_settings", metavar="KEY=VALUE", multiple=True, envvar="FALKIRK_SPARK_SET",
                     help="A Spark setting. Can be repeated."),
        *_WORK,
    ]  # fmt: skip


def serve_options(command: Command) -> Command:
    """The options for running a gateway."""
    place, log = _STATE[0], _WORK[-2:]
    return _with([click.argument("target", metavar="APP:FLOW"), *_CLUSTER, place, *log, config()], command)


def serve_settings(**options: Any) -> Settings:
    """Settings from `serve_options`. Raises ConfigError."""
    return Settings(
        **_reach(options),
        state_dir=str(options["state_dir"]),
        log_level=options["log_level"],
        log_format=options["log_format"],
    )


def run_options(command: Command) -> Command:
    """The options for running a flow."""
    return _with([*_run(), config()], command)


def sql_options(command: Command) -> Command:
    """The options for running a file of SQL."""
    file = click.option("--file", "target", metavar="FILE.sql", default="", help="The same as FILE.sql.")  # fmt: skip
    return _with([file, *_run()[1:], config()], command)


def rebuild_options(command: Command) -> Command:
    """The options for running a shadow of a flow."""
    ids = click.argument("ids", metavar="ID…", nargs=-1, required=True)
    return _with(
        [click.argument("target", metavar="APP:FLOW"), ids, *_CLUSTER, *_STATE, *_WORK, workers_option, config()],
        command,
    )


def dev_options(command: Command) -> Command:
    """The same, for a cluster of this machine: a settings file is read only if it is named, because the usual one is for
    another cluster."""
    return _with([*_run(KEPT), config(None)], command)


def state_options(command: Command) -> Command:
    """How to reach an app on a cluster, and its state."""
    return _with([*_CLUSTER, *_STATE, config()], command)


def cluster_options(command: Command) -> Command:
    """How to reach a cluster and an app on it."""
    return _with([*_CLUSTER, config()], command)


def _with(options: Sequence[Decorator], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def settings_from(**options: Any) -> Settings:
    """Settings from `run_options`; `executors_state_dir` is that of workers on Spark. Raises ConfigError."""
    check_query(options.get("query", ""), options.get("query_token_file", ""))
    return Settings(
        **_reach(options),
        state_dir=str(options["state_dir"]),
        workers=options["workers"],
        rebuild=tuple(options["rebuild"]),
        beside=options.get("beside", False),
        session_timeout_ms=options["session_timeout"] // _MILLISECOND,
        clock_bound_ms=options["clock_bound"] // _MILLISECOND,
        checkpoints=options["checkpoints"],
        replication=options["replication"],
        keep_steps_ms=(options.get("keep_steps") or timedelta()) // _MILLISECOND,
        on_divergence=options.get("on_divergence", "stop"),
        cache_bytes=parse_size(options["memory"], where="--memory"),
        spark=options.get("spark", "local[*]"),
        spark_settings=options["config"].of_spark() | _pairs("--spark-set", options.get("spark_settings", ())),
        executors_state_dir=options.get("executors_state_dir", ""),
        log_level=options["log_level"],
        log_format=options["log_format"],
        http=options.get("http", ""),
        query=options.get("query", ""),
        query_token_file=absolute(options.get("query_token_file", "")),
        traces=options.get("traces", ""),
    )


def state_settings(*, replication: int = -1, **options: Any) -> Settings:
    """Settings from `state_options`. Raises ConfigError."""
    state_dir = str(options["state_dir"])
    return Settings(**_reach(options), state_dir=state_dir, checkpoints=options["checkpoints"], replication=replication)


def cluster_settings(*, replication: int = -1, rebuild: Sequence[str] = (), **options: Any) -> Settings:
    """Settings from `cluster_options`, for commands that run nothing. Raises ConfigError."""
    return Settings(**_reach(options), state_dir="", replication=replication, rebuild=tuple(rebuild))


def _reach(options: dict[str, Any]) -> dict[str, Any]:
    brokers, client = options["brokers"], options["client"]
    if not brokers:
        raise ConfigError(
            "no brokers given",
            hint='name your cluster with --brokers HOST:PORT (or FALKIRK_BROKERS, or brokers = "HOST:PORT" in falkirk.toml); '
            "to try a flow on this machine alone, with a Kafka that starts by itself: falkirk dev",
        )
    given: ConfigFile = options["config"]
    return {
        "brokers": brokers,
        "prefix": options["prefix"],
        "client": given.client() | _pairs("--set", client),
        "clusters": given.others(_named(options["clusters"])),
        "databases": given.databases(),
    }


def _named(clusters: Sequence[str]) -> dict[str, str]:
    found = _pairs("--cluster", clusters)
    if wrong := next((name for name in found if not CLUSTER.fullmatch(name)), None):
        raise ConfigError(f"{wrong!r} is not a valid cluster name", where="--cluster", hint=NAMES)
    return found


def of_own_kafka(options: dict[str, Any], brokers: str) -> dict[str, Any]:
    """The options for this machine's own Kafka: settings of a cluster from elsewhere are for another one."""
    return {**options, "brokers": brokers, "config": replace(options["config"], alone=True)}


EXAMPLES = {
    "--set": "security.protocol=SASL_SSL",
    "--spark-set": "spark.driver.memory=2g",
    "--cluster": "sales=sales-1:9092,sales-2:9092",
}


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for number, pair in enumerate(given, 1):
        key, equals, value = pair.partition("=")
        if not equals:  # not repeated: it may hold a secret
            raise ConfigError(
                f"the value of {option} is not KEY=VALUE",
                where=f"number {number} of {len(given)}",
                hint=f"for instance {option} {EXAMPLES[option]}",
            )
        pairs[key] = value
    return pairs
