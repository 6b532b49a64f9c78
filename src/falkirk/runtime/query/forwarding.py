"""The request to the worker that runs a task. It carries the token, and is never forwarded again.

Falkirk-Task      the task that is meant: who is asked answers for it, or says 421
Falkirk-Worker    the worker that is meant, and in the answer the one that answers: another process may listen there now
"""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

import msgspec

from falkirk.runtime.host.identity import host_name
from falkirk.runtime.host.listening import is_loopback
from falkirk.runtime.query.answers import Part, decode_part
from falkirk.runtime.query.owners import Owner
from falkirk.runtime.query.questions import Refusal

TASK, WORKER = "Falkirk-Task", "Falkirk-Worker"

WAIT = 5.0
"""Seconds that a question may wait for a step."""

TIMEOUT = WAIT + 3.0
"""Seconds until another worker must have answered."""

LARGEST = 64 << 20
"""Bytes of an answer."""

MISDIRECTED = 421


def forward(owner: Owner, task: str, target: str, token: bytes) -> Part:
    """Ask the owner of a task. Raises Refusal: 503 if it may be another worker soon, 502 if asking again does not help."""
    place = urlsplit(owner.url)
    if place.hostname is None or place.port is None:
        raise Refusal(
            502, f"worker {owner.worker}, which runs task {task}, answers no questions", where=owner.host,
            hint="give all workers of the app --query",
        )  # fmt: skip
    if is_loopback(place.hostname) and owner.host != host_name():
        raise Refusal(
            502, f"worker {owner.worker}, which runs task {task}, answers only on its own host", where=owner.host,
            hint="give it a --query address that other hosts reach",
        )  # fmt: skip
    headers = {TASK: task, WORKER: owner.worker}
    if token:
        headers["Authorization"] = f"Bearer {token.decode()}"
    connection = HTTPConnection(place.hostname, place.port, timeout=TIMEOUT)
    try:
        connection.request("GET", target, headers=headers)
        answer = connection.getresponse()
        body = answer.read(LARGEST + 1)
    except (OSError, HTTPException) as error:
        what = f"worker {owner.worker}, which ran task {task}, does not answer: {error}"
        raise Refusal(503, what, again=1) from None
    finally:
        connection.close()
    if answer.status == 401:
        raise Refusal(502, f"worker {owner.worker} has another token", hint="give all workers of the app the same one")
    if answer.headers.get(WORKER) != owner.worker or answer.status == MISDIRECTED:
        raise Refusal(503, f"task {task} is moving: worker {owner.worker} does not run it any more", again=1)
    if answer.status == 200 and len(body) <= LARGEST:
        try:
            return decode_part(body)
        except msgspec.DecodeError as error:
            raise Refusal(502, f"worker {owner.worker} answers otherwise than this one: {error}") from None
    raise _failed(owner, answer.status, body, answer.headers.get("Retry-After", ""))


def _failed(owner: Owner, status: int, body: bytes, again: str) -> Refusal:
    try:
        said = _decode_failure(body)
    except msgspec.DecodeError:
        said = {}
    what = said.get("error", f"worker {owner.worker} answers with {status}")
    passed = status if status in (400, 404, 500, 503) else 502
    return Refusal(
        passed, what, where=said.get("where", ""), hint=said.get("hint", ""), again=int(again) if again.isdigit() else 0
    )


# Made at import: two threads that decode a type for the first time can crash.
_decode_failure = msgspec.json.Decoder(dict[str, str]).decode
