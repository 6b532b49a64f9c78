"""The processes of a run beside its workers: a driver, if the app has batch parts, and a gateway, if it is asked for."""

from __future__ import annotations

from collections.abc import Callable

from falkirk.runtime.app.app import App
from falkirk.runtime.gateway.options import GatewayOptions
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.events import WorkerEvent
from falkirk.runtime.processes.driver_child import DriverChild
from falkirk.runtime.processes.gateway_child import GatewayChild


class Companions:
    """They start when the workers work: before, they would take the processor, or Spark's cores, from workers that start."""

    def __init__(
        self,
        app: App,
        target: str,
        settings: Settings,
        gateway: GatewayOptions | None,
        tell: Callable[[WorkerEvent], None],
        *,
        until_end: bool,
    ) -> None:
        """`until_end`: batch parts are driven until they have read all that the sources held at the beginning."""
        self._app, self._target, self._settings = app, target, settings
        self._gateway, self._tell, self._until_end = gateway, tell, until_end
        self._driver: DriverChild | None = None
        self._serving: GatewayChild | None = None
        self._driven = not app.batches

    @property
    def driven(self) -> bool:
        """Whether the batch parts, if there are any, have come to their end."""
        return self._driven

    def turn(self, *, working: bool) -> None:
        """Start what is due, and look after what has started. `working`: whether the workers work. Raises what has ended a
        process for good."""
        if working and self._gateway is not None and self._serving is None:
            self._serving = GatewayChild(self._target, self._settings, self._gateway, self._tell)
        if working and self._app.batches and self._driver is None:
            self._driver = DriverChild(self._target, self._settings, self._tell, until_end=self._until_end)
        if self._serving is not None:
            self._serving.finished()
        if self._driver is not None:
            self._driven = self._driver.finished()

    def close(self) -> None:
        """End them."""
        try:
            if self._driver is not None:
                self._driver.close()
        finally:
            if self._serving is not None:
                self._serving.close()
