"""How an app is run: everything that is not the flow itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from falkirk.connectors.kafka.config import Cluster
from falkirk.stream.names import PREFIX


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one run. Times are in the unit that the name says."""

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
    """Operators that begin anew from what is retained of their inputs, where they keep something else than is recorded."""
    beside: bool = False
    """Those operators alone are run, in a shadow beside the app."""
    keep_steps_ms: int = 0
    """How long step records and edges stay that no task needs any more: so far back `falkirk why` can look."""
    on_divergence: str = "stop"
    """What becomes of recorded steps of a lazy task that give another output when they are run again: "stop", the task ends
    with an error; "correct", the difference is published."""
    cache_bytes: int = 256 << 20
    """Block cache and write buffers of all stores of one worker together."""
    log_level: str = "warning"
    log_format: str = "text"
    """What is written on standard error: "text", or "json", an object a line."""
    http: str = ""
    """Where metrics and probes are answered; empty: nowhere."""
    traces: str = ""
    """Where spans are sent, by OTLP over HTTP; empty: where OpenTelemetry's variables say, or nowhere."""
    spark: str = "local[*]"
    """Spark's master, for batch parts and for workers on Spark."""
    spark_settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of Spark's own."""
    executors_state_dir: str = ""
    """The state directory of workers on Spark's executors; empty: one of each host's own choice."""
    client: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    """librdkafka settings of the user's own: security, addresses. They hold secrets: no repr shows them."""
    clusters: Mapping[str, Cluster] = field(default_factory=dict, repr=False)
    """The other clusters that flows may read from, by name."""

    def cluster(self) -> Cluster:
        """The cluster that holds the app, and knows those that it may read from."""
        return Cluster(self.brokers, self.client, others=self.clusters)

    def checkpoint_url(self) -> str:
        """Where versions are copied to."""
        return self.checkpoints or (Path(self.state_dir).absolute() / "checkpoints").as_uri()
