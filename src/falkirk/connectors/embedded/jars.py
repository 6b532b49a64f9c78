"""Kafka's jars: pinned in `jars.lock`, downloaded once for each user, checked, shared, then offline.

A folder named after the list holds them. It is filled under another name and renamed when it is complete, so

    the folder exists  ⇔  every jar in it was complete and had its pinned SHA-256

no matter what crashed before. Jars that a crashed download had finished are kept, and not fetched again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from falkirk.connectors.class_archive import cache_folder
from falkirk.connectors.embedded.maven import download, local_copy
from falkirk.connectors.embedded.trouble import disk_error
from falkirk.errors import ClusterError


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned file.

    >>> Jar("ab" * 32, 41125, "org.slf4j:slf4j-api:1.7.36").name
    'slf4j-api-1.7.36.jar'
    """

    sha256: str
    size: int
    coordinate: str

    @property
    def name(self) -> str:
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"

    def is_at(self, path: Path) -> bool:
        """Whether `path` is a file with this jar's bytes."""
        return path.is_file() and _sha256(path) == self.sha256


@cache
def pinned_jars() -> tuple[Jar, ...]:
    """Every jar of the broker.

    >>> [jar.name for jar in pinned_jars() if jar.coordinate.startswith("org.apache.kafka:kafka_2.13")]
    ['kafka_2.13-4.3.0.jar']
    """
    text = files("falkirk.connectors.embedded").joinpath("jars.lock").read_text()
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return tuple(Jar(sha256, int(size), coordinate) for sha256, size, coordinate in rows)


def kafka_version() -> str:
    """The version of the embedded Kafka.

    >>> kafka_version()
    '4.3.0'
    """
    (broker,) = (jar for jar in pinned_jars() if jar.coordinate.startswith("org.apache.kafka:kafka_2.13:"))
    return broker.coordinate.rsplit(":", 1)[1]


def fetch_jars(jars: tuple[Jar, ...] | None = None, *, console: Console | None = None) -> Path:
    """The folder that holds every jar; downloads missing ones, with a progress bar on `console` (standard error).

    Two processes at once are safe: one downloads, the other waits for it. Raises ClusterError if the network is down
    or a download is not the pinned file, DiskError if the cache cannot be written.
    """
    jars = pinned_jars() if jars is None else jars
    console = console or Console(stderr=True)
    digest = hashlib.sha256("".join(jar.sha256 for jar in jars).encode()).hexdigest()[:12]
    folder = cache_folder() / f"kafka-{kafka_version()}-{digest}"
    partial, lock = (folder.with_name(folder.name + suffix) for suffix in (".part", ".lock"))
    if folder.exists():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(lock, console):
            if not folder.exists():
                _fill(partial, jars, console)
                partial.rename(folder)
    except OSError as error:
        raise disk_error(error, folder.parent, "the cache of Kafka's jars cannot be written") from error
    return folder


def _fill(folder: Path, jars: tuple[Jar, ...], console: Console) -> None:
    scratch = folder / "scratch"  # always the same name, so that the next run clears what a crash leaves
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    missing = [jar for jar in jars if not jar.is_at(folder / jar.name)]
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        if not console.is_terminal:
            console.print(f"Fetching Apache Kafka {kafka_version()} ({len(missing)} jars), once for this user …")
        bar = progress.add_task(f"Apache Kafka {kafka_version()}", total=sum(jar.size for jar in missing))

        def advance(count: int) -> None:
            progress.update(bar, advance=count)

        with ThreadPoolExecutor(6) as pool:
            waiting = [pool.submit(_fetch, jar, folder, scratch, advance) for jar in missing]
            try:
                for future in waiting:
                    future.result()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    shutil.rmtree(scratch)


def _fetch(jar: Jar, folder: Path, scratch: Path, advance: Callable[[int], None]) -> None:
    local = local_copy(jar.coordinate)
    if local is not None and jar.is_at(local):
        arrived = Path(shutil.copy(local, scratch))
        advance(jar.size)
    else:
        arrived = download(jar.coordinate, scratch, advance)
    if not jar.is_at(arrived):
        raise ClusterError(
            f"{jar.name} as downloaded is not the file that Falkirk pins",
            where=f"SHA-256 {_sha256(arrived)} instead of {jar.sha256}",
            hint="look at the Maven mirror or proxy that this machine uses: it serves another file under this name",
        )
    # fsync before the rename: otherwise, after a power cut, the name could be an empty file that nobody checks.
    with arrived.open("rb") as handle:
        os.fsync(handle.fileno())
    arrived.rename(folder / jar.name)


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextmanager
def _alone(lock: Path, console: Console) -> Iterator[None]:
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print("Another process is fetching Apache Kafka: waiting for it …")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
