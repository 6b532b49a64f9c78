"""The tasks of a worker, as its query endpoint reads them: `falkirk.runtime.query` has the rule for what an answer shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from falkirk.checkpoint.tasks import Phase
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.worker.task import RunningTask
from falkirk.state.rocks import RocksStore, StoreSnapshot

if TYPE_CHECKING:
    from falkirk.runtime.query.endpoint import Endpoint
    from falkirk.runtime.worker.worker import Worker


class RunningStates:
    """`falkirk.runtime.query.router.Tasks` of a worker. Any thread may ask, while the worker's own takes tasks and loses
    them."""

    def __init__(self, running: Mapping[int, RunningTask], coming: Mapping[int, object]) -> None:
        """`running`: the tasks that run, and `coming` all that are the worker's or will be; both by partition of the steps
        topic."""
        self._running, self._coming = running, coming

    @contextmanager
    def open(self, partition: int) -> Iterator[StoreSnapshot]:
        """The state of a task at its last committed step. Raises NotHere."""
        from falkirk.runtime.query.router import NotHere

        task = self._running.get(partition)
        if task is None:
            coming = partition in self._coming
            raise NotHere("is being taken over" if coming else "does not run in this worker", coming=coming)
        owned, store = task.owned, task.owned.store
        if owned.phase is not Phase.RUNNING or owned.lost or owned.revoked:
            raise NotHere("is leaving this worker", coming=False)
        if owned.correction is not None:
            raise NotHere("has a correction of earlier steps to commit", coming=True)
        if task.moving:
            raise NotHere("is being migrated or rebuilt", coming=True)
        with ExitStack() as stack:
            try:
                snapshot = stack.enter_context(store.snapshot()) if isinstance(store, RocksStore) else None
            except ValueError:
                snapshot = None  # it has left since
            if snapshot is None:
                raise NotHere("has no state in this worker", coming=False)
            yield snapshot


class Queries:
    """A worker's query endpoint, if the settings ask for one. Else nothing is imported."""

    def __init__(self, settings: Settings, slot: int, worker: str) -> None:
        """Raises ConfigError."""
        self._cluster, self._endpoint = (
            settings.cluster(),
            None if not settings.query else _endpoint(settings, slot, worker),
        )

    @property
    def url(self) -> str:
        """Where it answers; "": nowhere."""
        return "" if self._endpoint is None else self._endpoint.url

    @contextmanager
    def of(self, worker: Worker) -> Iterator[None]:
        """Meanwhile, it answers for this worker's tasks."""
        if self._endpoint is None:
            yield
            return
        self._endpoint.serve(worker.app, RunningStates(worker.tasks, worker.assigned), self._cluster)
        try:
            yield
        finally:
            self._endpoint.pause()

    def close(self) -> None:
        """Stop answering."""
        if self._endpoint is not None:
            self._endpoint.close()


def _endpoint(settings: Settings, slot: int, worker: str) -> Endpoint:
    from falkirk.runtime.query.endpoint import Endpoint

    return Endpoint(settings.query, settings.query_token_file, slot, worker)
