"""Services of the compose file as containers, which can be killed, paused and cut off."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from uuid import uuid4

import docker
import docker.errors
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from tests.containers.compose import Service

# Its janitor is an image of its own, which may not be to be had; `close` removes what was made.
testcontainers_config.ryuk_disabled = True

FREEZE_S = 60.0
"""How long to try to freeze a container's processes."""


class Containers:
    """Containers on a network of their own, with volumes of their own."""

    def __init__(self, services: Mapping[str, Service]) -> None:
        self.services = services
        self._stem = f"falkirk-test-{uuid4().hex[:8]}"
        self._engine = docker.from_env()
        self._network = Network().create()
        self._made: dict[str, DockerContainer] = {}

    def start(self, name: str) -> None:
        """Start a service; one that was killed goes on as it was."""
        if name in self._made:
            self._container(name).start()
            return
        service = self.services[name]
        container = self._made[name] = DockerContainer(service.image).with_name(f"{self._stem}-{name}")
        container.with_network(self._network).with_network_aliases(name).with_envs(**service.environment)
        if service.command:
            container.with_command(list(service.command))
        container.with_kwargs(read_only=service.read_only, entrypoint=list(service.entrypoint) or None)
        for path in service.tmpfs:
            container.with_tmpfs_mount(path)
        for target, (source, mode) in service.volumes.items():
            container.with_volume_mapping(source if source.startswith("/") else self._volume(source), target, mode)
        for inside, outside in service.ports.items():
            container.ports[f"{inside}/tcp"] = outside  # type: ignore[assignment]  # this host's loopback alone
        container.start()

    def address(self, name: str) -> str:
        """Where it is in the network."""
        container = self._container(name)
        container.reload()
        return str(container.attrs["NetworkSettings"]["Networks"][self._network.name]["IPAddress"])

    def ended(self, name: str) -> int | None:
        """Its exit code; None while it runs, or is paused."""
        container = self._container(name)
        container.reload()
        return int(container.attrs["State"]["ExitCode"]) if container.status == "exited" else None

    def kill(self, name: str) -> None:
        """kill -9 of all its processes."""
        container = self._container(name)
        container.kill("SIGKILL")
        container.wait()

    def stop(self, name: str) -> int:
        """SIGTERM, and its exit code; SIGKILL, which gives 137, when its time to end is over."""
        container = self._container(name)
        container.stop(timeout=self.services[name].grace_s)
        return int(container.wait()["StatusCode"])

    def wait(self, name: str, timeout_s: float) -> int:
        """Its exit code, when it ends by itself."""
        return int(self._container(name).wait(timeout=timeout_s)["StatusCode"])

    def pause(self, name: str) -> None:
        """Freeze all its processes.

        Under cgroups of version 1 runc gives up after some tenths of a second when one of them stands in a call that the
        kernel does not freeze, such as an fsync of a busy disk, and leaves it to its caller to ask again (runc, pull request
        4388).
        """
        until = time.monotonic() + FREEZE_S
        while True:
            try:
                return self._container(name).pause()
            except docker.errors.APIError as error:
                if "unable to freeze" not in str(error) or time.monotonic() > until:
                    raise
            time.sleep(0.2)

    def wake(self, name: str) -> None:
        """Let it go on."""
        self._container(name).unpause()

    def cut(self, name: str) -> None:
        """Take it off the network: its connections are not closed, they go silent."""
        self._engine.networks.get(self._network.name).disconnect(self._container(name))

    def join(self, name: str) -> None:
        """Put it back."""
        self._network.connect(self._made[name].get_container_id(), [name])

    def log(self, name: str) -> str:
        """All that it has said."""
        out, errors = self._made[name].get_logs()
        return (out + errors).decode(errors="replace")

    def logs(self) -> dict[str, str]:
        """What all of them have said."""
        return {name: self.log(name) for name in self._made}

    def close(self) -> None:
        """End and remove everything."""
        for container in reversed(self._made.values()):
            with contextlib.suppress(docker.errors.NotFound):
                container.stop()
        self._network.remove()
        for volume in self._engine.volumes.list(filters={"name": self._stem}):
            volume.remove(force=True)

    def _volume(self, name: str) -> str:
        return f"{self._stem}-{name}"

    def _container(self, name: str):  # type: ignore[no-untyped-def]  # docker's, which has no types
        return self._made[name].get_wrapped_container()
