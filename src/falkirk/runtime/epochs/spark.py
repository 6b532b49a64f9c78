"""Epochs computed by Spark: where Spark is, and what it gets for each epoch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from falkirk.checkpoint.epochs import Epochs
from falkirk.checkpoint.publishing import Outcome
from falkirk.errors import ConfigError
from falkirk.runtime.app.app import App
from falkirk.runtime.app.batch_part import BoundBatch
from falkirk.runtime.host.settings import Settings
from falkirk.stream.backfill import BackfillJob
from falkirk.stream.batch import Job

if TYPE_CHECKING:
    from falkirk.connectors.spark.application import Application
    from falkirk.connectors.spark.epochs.watching import Progress


class SparkCompute:
    """`falkirk.runtime.epochs.driver.Compute`."""

    def __init__(self, app: App, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._application: Application | None = None
        self._making = threading.Lock()

    def __call__(
        self, batch: BoundBatch, epochs: Epochs, job: Job | BackfillJob, on_progress: Callable[[str, int, int], None]
    ) -> list[Outcome]:
        """Compute the open epoch of a batch part, and publish it."""
        if self._application is None:
            on_progress("Spark starts", 0, 0)
        spark = self._spark()
        from falkirk.connectors.spark.epochs.epoch import run_epoch
        from falkirk.connectors.spark.epochs.work import Publishing, ReplacedRange, Target

        assert epochs.opened is not None
        keyed = [sink.key is not None for sink in batch.stage.sinks]
        keyed += [False] * (len(batch.outputs) - len(keyed))
        outputs = zip(batch.outputs, keyed, batch.lasts(), strict=True)
        targets = [Target(o.name, o.partitions, k, last) for o, k, last in outputs]
        publishing = Publishing(
            epoch=epochs.opened.epoch,
            opening=epochs.opening,
            progress=batch.epochs,
            app=self._app.name,
            stage=batch.stage.id,
            targets=tuple(targets),
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
            batch_bytes=min(self._app.limits[topic] for topic in [*(t.topic for t in targets), batch.epochs]),
        )
        with spark.at_work() as (session, check):
            on_progress("Spark has started", 0, 0)

            def told(progress: Progress) -> None:
                check()
                on_progress(progress.what, progress.done, progress.tasks)

            published = run_epoch(
                session,
                job,
                cluster=self._settings.cluster(),
                pieces=batch.pieces(epochs.opened),
                topic_ids={r.partition.place.topic: r.partition.topic_id for r in epochs.opened.division},
                headers=[i.headers for i in batch.stage.inputs],
                ghosts=[
                    ReplacedRange(n, p.topic, p.partition, start, end) for n, p, start, end in batch.replaced(epochs)
                ],
                publishing=publishing,
                on_progress=told,
                checkpoints=self._settings.checkpoint_url(),
            )
        return [p.outcome for p in published]

    @property
    def ui(self) -> str:
        """The address of Spark's UI; "" while there is none."""
        return "" if self._application is None else self._application.ui

    def close(self) -> None:
        """End Spark, if it was started."""
        if self._application is not None:
            self._application.close()

    def _spark(self) -> Application:
        """Made here, so that nothing of Spark is imported before the first epoch."""
        with self._making:
            if self._application is None:
                try:
                    from falkirk.connectors.spark.application import Application
                except ModuleNotFoundError as error:
                    if error.name != "pyspark":
                        raise
                    raise ConfigError(
                        f"app {self._app.name!r} needs Spark for its batch parts, but PySpark is not installed",
                        hint="pip install 'falkirk[spark]'",
                    ) from None
                name = f"falkirk {self._app.name}"
                self._application = Application(name, self._settings.spark, self._settings.spark_settings)
            return self._application
