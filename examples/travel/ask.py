"""Asks app.py how to fly from one airport to another, until it is answered. Airports are named as in JFK.

python examples/travel/ask.py ALB BUR
ALB to BUR: not with 2 changes, by the routes flown so far. No direct flight is known.
"""

from __future__ import annotations

import json
import time
from http.client import HTTPConnection, HTTPException
from typing import Any
from uuid import uuid4

import click

AGAIN = (503, 504)
"""What a gateway says when the same question may be asked again."""


class Unanswered(Exception):
    """It was asked for long enough, or it is no question."""


def ask(
    address: str, origin: str, dest: str, *, key: str | None = None, patience: float = 60.0, timeout: float = 40.0
) -> dict[str, Any]:
    """The answer of the app at HOST:PORT. However often this asks, the app computes the question once: it has one key.

    `timeout`: seconds after which it asks again. Raises Unanswered after `patience` seconds, or for what is no question.
    """
    body = json.dumps({"origin": origin, "dest": dest})
    headers = {"Content-Type": "application/json", "Idempotency-Key": key or str(uuid4())}
    deadline = time.monotonic() + patience
    while True:
        try:
            status, answer = _post(address, body, headers, timeout)
        except (OSError, HTTPException) as broken:  # nobody knows whether the question has arrived
            status, answer = AGAIN[0], {"error": repr(broken)}
        if status == 200:
            return dict(answer[0])
        if status not in AGAIN or time.monotonic() > deadline:
            raise Unanswered(f"{origin} to {dest}: {answer['error']}")
        time.sleep(0.1)


def _post(address: str, body: str, headers: dict[str, str], timeout: float) -> tuple[int, Any]:
    connection = HTTPConnection(address, timeout=timeout)
    try:
        connection.request("POST", "/ask", body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def sentence(answer: dict[str, Any]) -> str:
    """An answer in words."""
    legs, flights, delay = answer["legs"], answer["flights"], answer["delay"]
    if legs is None:
        way = "not with 2 changes"
    else:
        way = "direct" if legs == 1 else "1 change" if legs == 2 else f"{legs - 1} changes"
    if flights is None:
        usual = "No direct flight is known."
    elif delay is None:
        usual = f"All direct flights were cancelled: {flights}."
    else:
        usual = f"Direct flights: {flights:,}, delayed by {delay:.1f} minutes on the mean."
    return f"{answer['origin']} to {answer['dest']}: {way}, by the routes flown so far. {usual}"


@click.command()
@click.argument("origin")
@click.argument("dest")
@click.option("--at", "address", default="127.0.0.1:8080", show_default=True, help="HOST:PORT of the app.")
@click.option("--key", help="The Idempotency-Key; without it, a new one.")
def main(origin: str, dest: str, address: str, key: str | None) -> None:
    """Ask how to fly from ORIGIN to DEST."""
    try:
        click.echo(sentence(ask(address, origin, dest, key=key)))
    except Unanswered as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
