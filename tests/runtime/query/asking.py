"""Questions over HTTP, as a client asks them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import orjson

OPENER = build_opener(ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


def ask(url: str, path: str, token: str = "", **headers: str) -> Reply:
    """One question. Raises OSError if nobody answers."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        given["Authorization"] = f"Bearer {token}"
    try:
        with OPENER.open(Request(url + path, headers=given), timeout=20) as answer:
            return Reply(answer.status, orjson.loads(answer.read()), dict(answer.headers))
    except HTTPError as error:
        with error:
            return Reply(error.code, orjson.loads(error.read() or b"{}"), dict(error.headers))
