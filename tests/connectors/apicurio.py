"""A real schema registry: Apicurio's, which Maven Central has. Downloaded once for each user, checked, then offline."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from falkirk.connectors.class_archive import cache_folder
from falkirk.connectors.embedded.maven import download
from falkirk.connectors.embedded.node import free_port
from falkirk.connectors.java import find_java

ARTIFACT, VERSION = "io.apicurio:apicurio-registry-app", "2.4.2.Final"
SHA256 = "47329e6cfd92234c40820f100491155a24c2fc14c183cfe6fcfd1364c72fab3d"
"""Of the archive, 128 MB."""

START_TIMEOUT_S = 120.0


def fetched() -> Path:
    """The folder of the unpacked registry. It is filled under another name: it exists only when it is whole."""
    folder = cache_folder() / f"apicurio-{VERSION}-{SHA256[:12]}"
    cache_folder().mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            partial = folder.with_suffix(".part")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            archive = download(
                f"{ARTIFACT}:{VERSION}", partial / "scratch", lambda _: None, classifier="all", packaging="tar.gz"
            )
            with archive.open("rb") as content:
                assert hashlib.file_digest(content, "sha256").hexdigest() == SHA256, "not the archive that is pinned"
            with tarfile.open(archive) as packed:
                packed.extractall(partial, filter="data")
            shutil.rmtree(partial / "scratch")
            partial.rename(folder)
    return folder


@contextmanager
def registry(log: Path) -> Iterator[str]:
    """A registry that keeps all in memory, on loopback: its URL, as Confluent's clients take it."""
    jar = fetched() / f"apicurio-registry-app-{VERSION}-runner.jar"
    port = free_port()
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    where = ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
    with log.open("wb") as said:
        command = [str(find_java().executable), *options, *where, "-jar", str(jar)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(f"{url}/subjects"):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    """Whether a request succeeds just now."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False
