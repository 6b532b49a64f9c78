"""One file from Maven Central, or from where the user's own Maven gets its files.

Search order: the user's local Maven repository (M2_REPO, ~/.m2/repository); the repositories of the user's jgo.conf;
the mirror that ~/.m2/settings.xml names; Maven Central. Proxies come from the environment, passwords from ~/.netrc.
"""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from falkirk.errors import ClusterError, ConfigError

ATTEMPTS = 3
TIMEOUT_S = 30


def local_copy(coordinate: str) -> Path | None:
    """Where the user's own Maven would put the jar `group:artifact:version`; it may not exist."""
    from jgo.maven import MavenContext

    return MavenContext().create_dependency(coordinate).artifact.cached_path


def download(
    coordinate: str, scratch: Path, advance: Callable[[int], None], *, classifier: str = "", packaging: str = "jar"
) -> Path:
    """Download `group:artifact:version`, its jar or another file of it, into the folder `scratch`; return its path.

    `advance` is called with each number of bytes that arrives. Raises ClusterError if no repository answers.
    """
    import requests
    from jgo.maven import MavenContext, PythonResolver

    arrived = 0

    @contextmanager
    def counting(_name: str, _size: int) -> Iterator[Callable[[int], None]]:
        def count(size: int) -> None:
            nonlocal arrived
            arrived += size
            advance(size)

        yield count

    maven = MavenContext(
        resolver=PythonResolver(progress_callback=counting),
        repo_cache=scratch,
        remote_repos=_repositories(),
        timeout=TIMEOUT_S,
    )
    group, name, version = coordinate.split(":")
    artifact = maven.project(group, name).at_version(version).artifact(classifier, packaging)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            if (file := maven.resolver.download(artifact)) is not None:
                return file
        except (requests.RequestException, RuntimeError) as error:  # RuntimeError: every repository said no
            if attempt == ATTEMPTS:
                raise _unavailable(coordinate, error) from error
            advance(-arrived)
            arrived = 0
            if artifact.cached_path is not None:
                artifact.cached_path.unlink(missing_ok=True)  # the library asserts that nothing is there
            time.sleep(attempt)
    raise AssertionError("the last attempt returns or raises")


def mirror_of_central(settings: Path) -> str | None:
    """The URL of the mirror that a Maven settings file sets for Maven Central, if it sets one.

    >>> mirror_of_central(Path("no/such/settings.xml"))
    """
    if not settings.is_file():
        return None
    try:
        mirrors = ET.parse(settings).findall("{*}mirrors/{*}mirror")
    except ET.ParseError as error:
        raise ConfigError("Maven's settings cannot be read", where=f"{settings}: {error}", hint="fix it") from error
    for mirror in mirrors:
        mirrored = {name.strip() for name in mirror.findtext("{*}mirrorOf", "").split(",")}
        if mirrored & {"*", "central", "external:*"} and "!central" not in mirrored:
            return mirror.findtext("{*}url", "").strip().rstrip("/")
    return None


def _repositories() -> dict[str, str] | None:
    from jgo.config import GlobalSettings

    own: dict[str, str] = GlobalSettings.load().repositories
    mirror = mirror_of_central(Path.home() / ".m2" / "settings.xml")
    return own or ({"mirror": mirror} if mirror else None)


def _unavailable(coordinate: str, error: Exception) -> ClusterError:
    if isinstance(error, RuntimeError):
        return ClusterError(
            "the Maven repository does not have one of Kafka's jars",
            where=f"{coordinate}: {error}",
            hint="look at the mirror in ~/.m2/settings.xml, or at jgo.conf: is it a mirror of Maven Central?",
        )
    return ClusterError(
        "Kafka's jars could not be downloaded: the network is down, or does not let this machine through",
        where=f"{coordinate}: {error}",
        hint="the first start needs the network, later ones do not; behind a proxy set HTTPS_PROXY, or a mirror in "
        "~/.m2/settings.xml; without any network, copy another machine's cache and set FALKIRK_CACHE to its folder",
    )
