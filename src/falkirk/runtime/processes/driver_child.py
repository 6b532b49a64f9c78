"""The supervisor's end of a driver process, which drives batch parts. While it is away, its epoch waits. No reader does."""

from __future__ import annotations

from collections.abc import Callable

from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.events import WorkerEvent
from falkirk.runtime.messages.protocol import EpochReport, FromWorker
from falkirk.runtime.processes.kept_child import KeptChild
from falkirk.runtime.processes.parent import command


class DriverChild(KeptChild):
    """Keeps a driver process running. When it is stopped, an open epoch continues with the next driver."""

    def __init__(
        self, target: str, settings: Settings, tell: Callable[[WorkerEvent], None], *, until_end: bool = False
    ) -> None:
        """With `until_end`, it is finished when epochs have read all that the sources held when it began."""
        arguments = command("falkirk.runtime.epochs.process", target, *(["end"] if until_end else []))
        super().__init__("the driver of batch parts", arguments, settings, tell)

    def hear(self, said: FromWorker) -> None:
        if isinstance(said, EpochReport):
            if said.state == "complete":
                self.worked()
            self._tell(said)

    def shows(self, line: str) -> bool:
        return not chatter(line)


def chatter(line: str) -> bool:
    """Spark writes long greetings, and a JVM logs it when it is ended."""
    return not line.strip() or " WARN " in line or line.startswith(_GREETINGS)


_GREETINGS = (
    "WARNING:",
    "Setting default log level",
    "Setting Spark log level",
    "To adjust logging",
    "Using Spark's default log4j profile",
)
