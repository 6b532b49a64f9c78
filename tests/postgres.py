"""A PostgreSQL for tests: Debian's, in a container, or from this machine's packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.ports import free_port
from tests.waiting import PATIENCE_S

IMAGE = "FALKIRK_TEST_POSTGRES_IMAGE"
"""An image that was asked for must be there: tests fail without it, and are not skipped."""
PASSWORD = "h:u/s@h"
"""Of the superuser. It must be quoted in an address."""


class Server:
    """One server, which can be stopped at once and started again."""

    def __init__(self, port: int) -> None:
        self.port = port

    def start(self) -> None:
        """Start it, and wait until it answers."""
        raise NotImplementedError

    def kill(self) -> None:
        """End all its processes at once."""
        raise NotImplementedError

    def close(self) -> None:
        """End it, and remove what it kept."""
        raise NotImplementedError

    def url(self, database: str = "postgres", user: str = "postgres", password: str = PASSWORD) -> str:
        """An address."""
        from urllib.parse import quote

        return f"postgresql://{user}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres") -> Any:
        """A connection of the superuser, without transactions."""
        import psycopg

        return psycopg.connect(self.url(database), autocommit=True, connect_timeout=10)

    def wait(self) -> None:
        """Until it answers."""
        import psycopg

        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.connect().close()
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, "PostgreSQL does not answer"
                time.sleep(0.1)
            else:
                return

    @contextmanager
    def database(self) -> Iterator[str]:
        """The name of a new database."""
        name = f"test_{uuid4().hex[:12]}"
        with self.connect() as connection:
            connection.execute(f'create database "{name}"')
        yield name
        with suppress(Exception), self.connect() as connection:
            connection.execute(f'drop database "{name}" with (force)')


class Installed(Server):
    """A server from the packages of this machine."""

    def __init__(self, programs: Path) -> None:
        super().__init__(free_port())
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="falkirk-postgres-"))
        self._user = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
        if self._user:
            shutil.chown(self._folder, "postgres", "postgres")
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        if self._user:
            shutil.chown(secret, "postgres", "postgres")
        self._do("initdb", "-D", "data", "-U", "postgres", "-A", "scram-sha-256", "--pwfile", "password", "-E", "UTF8",
                 "--no-locale")  # fmt: skip
        with (self._folder / "data" / "postgresql.conf").open("a") as conf:
            conf.write(f"listen_addresses = '127.0.0.1'\nport = {self.port}\nunix_socket_directories = ''\n")
            conf.write("deadlock_timeout = 100ms\n")

    def start(self) -> None:
        self._do("pg_ctl", "-D", "data", "-l", "log", "-w", "-s", "start")
        self.wait()

    def kill(self) -> None:
        self._do("pg_ctl", "-D", "data", "-m", "immediate", "-s", "stop")

    def close(self) -> None:
        with suppress(subprocess.CalledProcessError):
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _do(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._programs / program, *arguments], cwd=self._folder, check=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, **self._user,
        )  # type: ignore[call-overload]  # fmt: skip


class Contained(Server):
    """A server in a container."""

    def __init__(self, image: str) -> None:
        from testcontainers.core.config import testcontainers_config
        from testcontainers.core.container import DockerContainer

        testcontainers_config.ryuk_disabled = True
        super().__init__(free_port())
        self._container = DockerContainer(image).with_env("POSTGRES_PASSWORD", PASSWORD)
        self._container.ports["5432/tcp"] = ("127.0.0.1", self.port)  # type: ignore[assignment]
        self._began = False

    def start(self) -> None:
        if self._began:
            self._container.get_wrapped_container().start()
        else:
            self._container.start()
        self._began = True
        self.wait()

    def kill(self) -> None:
        self._container.get_wrapped_container().kill("SIGKILL")
        self._container.get_wrapped_container().wait()

    def close(self) -> None:
        self._container.stop()


def server() -> Server:
    """A server that runs; skips the test if there can be none."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    if image := os.environ.get(IMAGE):
        found: Server = Contained(image)
    elif programs := _programs():
        found = Installed(programs)
    else:
        pytest.skip(f"no PostgreSQL is installed (Debian: apt-get install postgresql), and {IMAGE} names no image")
    found.start()
    return found


def _programs() -> Path | None:
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: int(place.parent.name), reverse=True)
    return next((place for place in places if (place / "initdb").exists()), None)
