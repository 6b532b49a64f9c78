"""How an app is run: all settings outside the flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from falkirk.connectors.kafka.client.config import Cluster
from falkirk.stream.definition.names import PREFIX


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one run. Units of time are in the names."""

    brokers: str
    state_dir: str
    workers: int = 1
    session_timeout_ms: int = 10_000
    transaction_timeout_ms: int = 60_000
    checkpoints: str = ""
    """URL of the checkpoint store; empty: a folder in the state directory."""
    replication: int = -1
    """Replication factor of the topics that the app makes; -1: the broker's default."""
    prefix: str = PREFIX
    """The app's own topics are called PREFIX.APP.NAME."""
    rebuild: tuple[str, ...] = ()
    """Operators that begin again from what their inputs still hold, if they keep something else than recorded."""
    beside: bool = False
    """Only those operators run, in a shadow beside the app."""
    clock_bound_ms: int = 60_000
    """By how much this host's clock may differ from the broker's. A worker whose clock differs by more takes no tasks."""
    keep_steps_ms: int = 0
    """How long step records and edges stay that no task needs any more: `falkirk why` can look back this far."""
    on_divergence: str = "stop"
    """What happens if recorded steps of a lazy task give another output when they run again: "stop" ends the task with an
    error; "correct" publishes the difference."""
    cache_bytes: int = 256 << 20
    """Block cache and write buffers of all stores of one worker together."""
    log_level: str = "warning"
    log_format: str = "text"
    """The form of standard error: "text", or "json", one object per line."""
    http: str = ""
    """The address for metrics and probes; empty: none."""
    query: str = ""
    """The address where workers answer for their state; empty: none."""
    query_token_file: str = ""
    """The file with the token that those who ask must have; empty: anybody may ask, and the address is on loopback."""
    traces: str = ""
    """Where spans are sent, by OTLP over HTTP; empty: where OpenTelemetry's variables say, or nowhere."""
    spark: str = "local[*]"
    """Spark's master, for batch parts and for workers on Spark."""
    spark_settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Spark's settings."""
    executors_state_dir: str = ""
    """The state directory of workers on Spark's executors; empty: each host's own choice."""
    client: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    """The user's librdkafka settings: security, addresses. They hold secrets: no repr shows them."""
    clusters: Mapping[str, Cluster] = field(default_factory=dict, repr=False)
    """The other clusters that flows may read from, by name."""
    databases: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The addresses of the databases that flows write to, by name. They hold passwords."""

    def cluster(self) -> Cluster:
        """The cluster that holds the app, with those that the app may read from."""
        return Cluster(self.brokers, self.client, others=self.clusters)

    def checkpoint_url(self) -> str:
        """Where versions are copied to."""
        return self.checkpoints or (Path(self.state_dir).absolute() / "checkpoints").as_uri()
