"""Spark's masters, by URL: their kind, and whether one can be reached. It does not import Spark, and is quick."""

from __future__ import annotations

import re
import socket

from falkirk.errors import ConfigError, UnreachableError

PATIENCE = 5.0
"""Seconds for a connection. Spark itself tries for a minute before it gives up."""

_KNOWN = re.compile(r"local(\[[^]]+\])?|local-cluster\[[^]]+\]|spark://\S+:\d+|yarn|k8s://\S+")


def is_local(master: str) -> bool:
    """Whether everything runs in this process and its children."""
    return master.startswith("local")


def addresses(master: str) -> list[tuple[str, int]]:
    """The addresses of a standalone master and its stand-ins; for other masters, none.

    >>> addresses("spark://one:7077,[::1]:7078"), addresses("local[*]")
    ([('one', 7077), ('::1', 7078)], [])
    """
    if not master.startswith("spark://"):
        return []
    places = (place.rpartition(":") for place in master.removeprefix("spark://").split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in places]


def is_on_loopback(master: str) -> bool:
    """Whether a standalone master is on this machine, and only for this machine.

    >>> is_on_loopback("spark://127.0.0.1:7077"), is_on_loopback("spark://10.0.0.1:7077"), is_on_loopback("yarn")
    (True, False, False)
    """
    hosts = [host for host, _ in addresses(master)]
    return bool(hosts) and all(host.startswith("127.") or host in ("localhost", "::1") for host in hosts)


def check_master(master: str) -> None:
    """Raises ConfigError if this is not a master, and UnreachableError if a standalone one does not answer.

    >>> check_master("sprak://one:7077")
    Traceback (most recent call last):
    falkirk.errors.ConfigError: 'sprak://one:7077' is not a Spark master
      to do: it is local[*], spark://HOST:PORT, yarn or k8s://HOST:PORT
    """
    if not _KNOWN.fullmatch(master):
        raise ConfigError(
            f"{master!r} is not a Spark master", hint="it is local[*], spark://HOST:PORT, yarn or k8s://HOST:PORT"
        )
    failed = []
    for place in addresses(master):
        try:
            socket.create_connection(place, PATIENCE).close()
        except OSError as error:
            failed.append(f"{place[0]}: {error.strerror or error}")
        else:
            return
    if failed:
        raise UnreachableError(
            f"Spark's master does not answer at {master}",
            where="; ".join(failed),
            hint="is it running, and is the address right? It is the one that its web page shows, and its log",
        )
