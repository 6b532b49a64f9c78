"""What docker/compose.yaml says, as far as tests ask: so that it is this very file whose services they run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker" / "compose.yaml"


@dataclass(frozen=True, slots=True)
class Service:
    """One container."""

    name: str
    image: str
    entrypoint: tuple[str, ...]
    """Nothing: the image's own."""
    command: tuple[str, ...]
    environment: Mapping[str, str]
    volumes: Mapping[str, tuple[str, str]]
    """Path in the container → (name of a volume or folder of this host, mode)."""
    ports: Mapping[int, tuple[str, int]]
    """Port of the container → address and port of this host."""
    depends_on: tuple[str, ...]
    grace_s: int
    """How long it has to end after SIGTERM."""
    read_only: bool
    """It can write to its volumes alone, and to `tmpfs`."""
    tmpfs: tuple[str, ...]


def services(variables: Mapping[str, str], path: Path = COMPOSE) -> dict[str, Service]:
    """All services, by name.

    >>> services({"KAFKA_PORT": "9999"})["kafka"].ports
    {9094: ('127.0.0.1', 9999)}
    """
    content = yaml.safe_load(path.read_text())
    return {name: _service(name, _filled(given, variables), path) for name, given in content["services"].items()}


def _filled(given: Any, variables: Mapping[str, str]) -> Any:
    """With variables in the place of ${NAME:-what it is otherwise}."""
    if isinstance(given, dict):
        return {key: _filled(value, variables) for key, value in given.items()}
    if isinstance(given, list):
        return [_filled(value, variables) for value in given]
    if isinstance(given, str):
        return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: variables.get(found[1], found[2]), given)
    return given


def _service(name: str, given: dict[str, Any], path: Path) -> Service:
    volumes = {}
    for volume in given.get("volumes", ()):
        source, target, *mode = volume.split(":")
        if source.startswith((".", "/")):
            source = str((path.parent / source).resolve())
        volumes[target] = source, mode[0] if mode else "rw"
    ports = {}
    for port in given.get("ports", ()):
        address, outside, inside = port.split(":")
        ports[int(inside)] = address, int(outside)
    return Service(
        name,
        given["image"],
        tuple(given.get("entrypoint", ())),
        tuple(shlex.split(given.get("command", ""))),
        {key: str(value) for key, value in given.get("environment", {}).items()},
        volumes,
        ports,
        tuple(given.get("depends_on", ())),
        int(given.get("stop_grace_period", "10s").removesuffix("s")),
        given.get("read_only", False),
        tuple(given.get("tmpfs", ())),
    )
