"""A flow over bids on a secured broker, run by a user who may do what `falkirk topics --acls` says, and nothing else."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from tests.bad_input.commands import Going, Screen, screen
from tests.bad_input.stand import Stand, flow_file
from tests.security.secured import Secured
from tests.waiting import PATIENCE_S

PASSWORD = "open sesame, said once"
"""It has what tears command lines and settings apart; and nothing else that is written has it."""

SETTINGS = """
brokers = "{brokers}"
state-dir = "{state}"
session-timeout = "6s"

[kafka]
security.protocol = "SASL_SSL"
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "{user}"
sasl.password = {{env = "PASSWORD"}}
ssl.ca.location = "{certificate}"
"""

BIDDERS = """
bidders = bids.group_by("bidder", id="bidders").agg(n=fk.len(), top=fk.max("price"), total=fk.sum("price"))
bidders.sink(PREFIX + "bidders", key="bidder", value=fk.Json())
"""
"""Another grouping of the same bids, by what they are not keyed by: there is an exchange before it."""
FLOW = flow_file(BIDDERS)


class Guarded(Stand):
    """One app, and its user."""

    def __init__(self, broker: Secured, prefix: str, folder: Path) -> None:
        super().__init__(broker.back, prefix, folder)
        self.broker, self.user = broker, f"{prefix}user"
        broker.user(self.user, PASSWORD)
        self.file = folder / "falkirk.toml"
        self.write()
        client = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": self.user,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(broker.certificate),
        }
        self.settings = replace(self.settings, brokers=broker.front, client=client)

    def write(self, brokers: str = "", certificate: Path | None = None) -> None:
        """The settings file."""
        self.file.write_text(
            SETTINGS.format(
                brokers=brokers or self.broker.front,
                state=self.settings.state_dir,
                user=self.user,
                certificate=certificate or self.broker.certificate,
            )
        )

    def falkirk(self, *arguments: str, password: str = PASSWORD, timeout: float = PATIENCE_S) -> Screen:
        """A command with the settings of the app, to its end."""
        command = [sys.executable, "-m", "falkirk", arguments[0], "--config", str(self.file), *arguments[1:]]
        return screen(command, timeout, PASSWORD=password)

    def allow(self, *more: str, flow: str = FLOW) -> None:
        """What an administrator does: make the topics, and grant the rights, that the command names. `more`: its options."""
        rights = ["--acls", "--user", self.user, "--create", *more]
        done = screen(
            [sys.executable, "-m", "falkirk", "topics", self.target(flow), "--brokers", self.brokers, *rights]
        )
        assert done.code == 0, done.text

    def begin(self, *more: str, flow: str = FLOW) -> Going:
        """Run the app, and leave it running."""
        command = [sys.executable, "-m", "falkirk", "run", self.target(flow), "--config", str(self.file), *more]
        self._going.append(Going(command, self.folder / f"said-{len(self._going)}", PASSWORD=PASSWORD))
        return self._going[-1]

    def to_the_end(self, **given: str) -> Screen:
        """Run it until everything is processed."""
        return self.falkirk("run", self.target(FLOW), "--until", "end", **given)  # type: ignore[arg-type]
