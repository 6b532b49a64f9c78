"""Downloads, from a Maven repository that the test serves itself."""

from __future__ import annotations

import hashlib
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console
from tests.waiting import PATIENCE_S

from falkirk.connectors.embedded import jars as jars_module
from falkirk.connectors.embedded import maven
from falkirk.connectors.embedded.jars import Jar, fetch_jars, pinned_jars
from falkirk.errors import ClusterError, ConfigError, DiskError

CONTENTS = {f"org.example:part{n}:1.{n}": bytes([n]) * 10_000 for n in range(5)}
JARS = tuple(Jar(hashlib.sha256(data).hexdigest(), len(data), name) for name, data in CONTENTS.items())

# Fetches the jars of this file, as another process would.
FETCH = f"from falkirk.connectors.embedded.jars import Jar, fetch_jars; print(fetch_jars({JARS!r}))"


class Repository(ThreadingHTTPServer):
    """A Maven repository with the jars of CONTENTS; it counts what it is asked for, and can be told to misbehave."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files = {
            f"/org/example/{artifact}/{version}/{artifact}-{version}.jar": data
            for name, data in CONTENTS.items()
            for _, artifact, version in [name.split(":")]
        }
        self.asked: list[str] = []
        self.cut_short: set[str] = set()
        self.stuck: set[str] = set()
        self.url = f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Repository

    def do_GET(self) -> None:
        data = self.server.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        self.server.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.path in self.server.stuck:
            self.wfile.write(data[:10])
            time.sleep(60)
        self.wfile.write(data[: len(data) // 2] if self.path in self.server.cut_short else data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """The repository, as the mirror in the Maven settings of a user with an empty cache."""
    server = Repository()
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = tmp_path / "home" / ".m2" / "settings.xml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        '<settings xmlns="urn:any"><mirrors>'
        "<mirror><mirrorOf>other</mirrorOf><url>http://127.0.0.1:9/</url></mirror>"
        f"<mirror><mirrorOf>central</mirrorOf><url>{server.url}/</url></mirror></mirrors></settings>"
    )
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FALKIRK_CACHE", str(tmp_path / "cache"))
    for name in ("M2_REPO", "JGO_CONFIG_FILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(maven, "ATTEMPTS", 2)
    yield server
    server.shutdown()
    server.server_close()


def quiet() -> Console:
    return Console(file=io.StringIO())


def path_of(jar: Jar) -> str:
    _, artifact, version = jar.coordinate.split(":")
    return f"/org/example/{artifact}/{version}/{artifact}-{version}.jar"


def assert_whole(folder: Path) -> None:
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        jar.name: CONTENTS[jar.coordinate] for jar in JARS
    }


def test_every_pinned_jar_has_a_digest_a_size_and_a_name_of_its_own() -> None:
    jars = pinned_jars()
    assert len({jar.name for jar in jars}) == len(jars) > 40
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) and jar.size > 0 for jar in jars)


def test_jars_come_from_the_mirror_of_the_users_maven_once_and_then_offline(repository: Repository) -> None:
    console = quiet()
    folder = fetch_jars(JARS, console=console)
    assert_whole(folder)
    assert sorted(repository.asked) == sorted(path_of(jar) for jar in JARS)
    assert "Apache Kafka" in console.file.getvalue()  # type: ignore[attr-defined]
    repository.shutdown()
    assert fetch_jars(JARS, console=quiet()) == folder


def test_jars_of_the_local_maven_repository_are_used_unless_they_are_damaged(
    repository: Repository, tmp_path: Path
) -> None:
    for jar, data in ((JARS[0], CONTENTS[JARS[0].coordinate]), (JARS[1], b"damaged")):
        local = tmp_path / "home" / ".m2" / "repository" / path_of(jar).lstrip("/")
        local.parent.mkdir(parents=True)
        local.write_bytes(data)
    assert_whole(fetch_jars(JARS, console=quiet()))
    assert sorted(repository.asked) == sorted(path_of(jar) for jar in JARS[1:])


def test_a_file_that_is_not_the_pinned_one_is_refused_and_never_used(repository: Repository) -> None:
    repository.files[path_of(JARS[2])] = b"something else"
    with pytest.raises(ClusterError, match=r"part2-1.2.jar as downloaded is not the file"):
        fetch_jars(JARS, console=quiet())
    repository.files[path_of(JARS[2])] = CONTENTS[JARS[2].coordinate]
    assert_whole(fetch_jars(JARS, console=quiet()))


def test_a_connection_that_breaks_is_tried_again(repository: Repository) -> None:
    repository.cut_short = {path_of(JARS[3])}
    with pytest.raises(ClusterError, match="could not be downloaded: the network is down"):
        fetch_jars(JARS, console=quiet())
    assert repository.asked.count(path_of(JARS[3])) == 2
    repository.cut_short.clear()
    assert_whole(fetch_jars(JARS, console=quiet()))


def test_a_mirror_that_lacks_a_jar_is_named_as_the_cause(repository: Repository) -> None:
    jar = replace(JARS[0], coordinate="org.example:absent:1.0")
    with pytest.raises(ClusterError, match=r"does not have one of Kafka's jars\n.*org.example:absent:1.0"):
        fetch_jars((jar,), console=quiet())


def test_without_network_the_error_tells_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOME": tmp_path, "FALKIRK_CACHE": tmp_path, "HTTPS_PROXY": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("M2_REPO", raising=False)
    monkeypatch.setattr(maven, "ATTEMPTS", 1)
    with pytest.raises(ClusterError, match=r"the network is down.*\n.*\n.*the first start needs the network"):
        fetch_jars(console=quiet())


def test_unreadable_maven_settings_are_named(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "home" / ".m2" / "settings.xml").write_text("<settings><mirr")
    with pytest.raises(ConfigError, match=r"settings cannot be read\n.*settings.xml"):
        fetch_jars(JARS, console=quiet())


def test_a_mirror_may_except_maven_central(tmp_path: Path) -> None:
    settings = tmp_path / "settings.xml"
    settings.write_text(
        "<settings><mirrors><mirror><mirrorOf>*, !central</mirrorOf><url>u</url></mirror></mirrors></settings>"
    )
    assert maven.mirror_of_central(settings) is None


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FALKIRK_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DiskError, match=r"the cache of Kafka's jars cannot be written"):
        fetch_jars(JARS, console=quiet())


def test_of_two_processes_at_once_one_downloads_and_the_other_waits(repository: Repository) -> None:
    both = [subprocess.Popen([sys.executable, "-c", FETCH], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = {process.communicate(timeout=PATIENCE_S)[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(answers) == 1
    assert_whole(Path(answers.pop()))
    assert sorted(repository.asked) == sorted(path_of(jar) for jar in JARS)


def test_after_a_crash_midway_only_the_rest_is_fetched(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.stuck = {path_of(JARS[4])}
    process = subprocess.Popen([sys.executable, "-c", FETCH])
    deadline = time.monotonic() + PATIENCE_S
    while len(list((tmp_path / "cache").glob("*.part/*.jar"))) < 4:
        assert time.monotonic() < deadline, "the other four never arrived"
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    repository.stuck.clear()
    repository.asked.clear()
    folder = fetch_jars(JARS, console=quiet())
    assert_whole(folder)
    assert repository.asked == [path_of(JARS[4])]
    assert [path.name for path in jars_module.cache_folder().iterdir() if path.is_dir()] == [folder.name], (
        "scratch left"
    )
