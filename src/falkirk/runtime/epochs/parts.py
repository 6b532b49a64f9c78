"""The batch parts that stop by themselves, while the rest of the app goes on (`on_failure="part"`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from falkirk.checkpoint.ids import Offset
from falkirk.connectors.kafka.client.config import logger
from falkirk.connectors.spark.errors import SparkEnded
from falkirk.errors import FalkirkError
from falkirk.runtime.app.app import App
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.parts import STOP_THE_APP, StoppedPart, stop_part, stopped_words
from falkirk.runtime.messages.requests import RequestListener


class BatchParts:
    """Those of one driver process. Its drivers call it from their threads."""

    def __init__(self, app: App, settings: Settings, who: str, *, until_end: bool) -> None:
        """`until_end`: a part that has stopped is given up."""
        self._app, self._cluster, self._who, self._until_end = app, settings.cluster(), who, until_end
        self._requests = RequestListener(self._cluster, app.control)
        self._said: dict[str, Offset] = {}
        """Where this process's word that a part has stopped is recorded."""

    @contextmanager
    def guard(self, part: str) -> Iterator[None]:
        """Drives a part. If it raises an error of the part's own, the part stops, and nothing is raised. (Where Spark has
        ended, another driver may succeed.)"""
        try:
            yield
        except FalkirkError as error:
            if self._app.plan.on_failure == "app" or isinstance(error, (*STOP_THE_APP, SparkEnded)):
                raise
            logger.error(stopped_words(self._app.name, part, error), extra={"part": part})
            stopped = StoppedPart.of(error, self._who)
            self._said[part] = stop_part(self._cluster, self._app.control, part, stopped)

    def may_run(self, part: str) -> bool:
        """Whether the part has not stopped, as far as is known."""
        heard = self._requests.heard()
        if heard is None:
            return False
        record = heard.parts.get(part)
        if record is None:
            return part not in self._said
        return record.stopped is None and record.offset >= self._said.get(part, 0)

    def given_up(self, part: str) -> bool:
        """Whether the part has stopped, and nobody is waited for who might resume it."""
        return self._until_end and self._requests.heard() is not None and not self.may_run(part)

    def close(self) -> None:
        """Stop listening."""
        self._requests.close()
