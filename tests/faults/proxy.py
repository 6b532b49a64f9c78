"""The proxy: a listening port for each broker of a cluster, all of it in one thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self

from tests.faults.connection import Connection, Held
from tests.faults.faults import At, Fault, Plan, Rule
from tests.faults.frames import Api, Request, address, brokerless, capped, readdressed, shown
from tests.faults.journal import Journal
from tests.ports import free_ports

KAFKA_2_7 = {Api.METADATA: 9}
"""The highest version of requests, where it matters here: topics have ids from version 10 on."""


class Proxy:
    """Stands before the brokers of a cluster, each under a port that the proxy has from the beginning.

        with Proxy(brokers) as proxy:
            proxy.add(HOLD, Api.END_TXN)
            Producer({"bootstrap.servers": proxy.address, …})

    Rules come before the plan. They may be added and taken away at any time.
    """

    def __init__(self, brokers: str, plan: Plan | None = None, journal: Journal | None = None) -> None:
        self.brokers = [(host, int(port)) for host, _, port in (one.partition(":") for one in brokers.split(","))]
        self.ports = free_ports(len(self.brokers), self.brokers[0][0])
        self.address = ",".join(f"{host}:{port}" for (host, _), port in zip(self.brokers, self.ports, strict=True))
        self.plan = plan
        self.rules: list[Rule] = []
        self.highest: Mapping[int, int] = {}
        """The versions that ApiVersions responses name at most."""
        self.brokerless = False
        """Whether the brokers say that there are none, as the only one does between its start and its registration."""
        self.journal = journal or Journal(f"seed {plan.seed}" if plan else "")
        self.requests: Counter[int] = Counter()
        """How many have come, by API."""
        self._addresses = {
            address(host, theirs): address(host, ours)
            for (host, theirs), ours in zip(self.brokers, self.ports, strict=True)
        }
        self._held: list[Held] = []
        self._connections: set[Connection] = set()
        self._number = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)

    def add(self, fault: Fault, *apis: int, nth: int = 1, times: int | None = 1) -> Rule:
        """A fault for the nth request of these APIs from now on, and for as many as `times` says (None: all)."""
        rule = Rule(fault, apis, nth, times)
        self.rules.append(rule)
        return rule

    def listen(self) -> None:
        """Be up."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def reset(self) -> None:
        """Reset every connection that there is."""
        self._loop.call_soon_threadsafe(self._reset)

    def close(self) -> None:
        """End all connections, and be down."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
        self.journal.close()

    def __enter__(self) -> Self:
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what connections ask, in the event loop -----------------------------------------------------------------------

    def arrived(self, request: Request, connection: Connection) -> tuple[Request, Fault | None]:
        """Number a request, and choose what is done to it."""
        self.requests[request.api] += 1
        request = request._replace(
            connection=connection.number, broker=connection.place, nth=self.requests[request.api]
        )
        for held in self._held:
            held.see(request)
        # Each rule counts what comes, whichever of them is the first that applies.
        chosen = [rule.fault for rule in list(self.rules) if rule.chosen(request)]
        return request, chosen[0] if chosen else self.plan.fault(request) if self.plan else None

    def hold(self, held: Held) -> None:
        """Keep a request until what it waits for comes by, or its time is over."""
        until = held.fault.until
        if until is not None:
            self._held.append(held)
        self._loop.call_later(
            until.seconds if until else held.fault.seconds, held.connection.deliver, held, lambda: None
        )

    def released(self, request: Request, at: At) -> Sequence[Held]:
        """What was held until this request."""
        self._held = [held for held in self._held if not held.over]
        return [held for held in self._held if held.waits_for(request, at)]

    def rewritten(self, response: bytes, request: Request) -> bytes:
        """A response as clients of the proxy are to see it."""
        if request.api == Api.API_VERSIONS and self.highest:
            return capped(response, request.version, self.highest)
        if request.api == Api.METADATA and self.brokerless:
            return brokerless(response)
        return readdressed(response, request.api, self._addresses)

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""
        self._connections.discard(connection)

    async def _listen(self) -> None:
        self._servers = []
        for place, ((host, port), ours) in enumerate(zip(self.brokers, self.ports, strict=True)):

            def accept(place: int = place, host: str = host, port: int = port) -> asyncio.Protocol:
                self._number += 1
                connection = Connection(self, self._number, place)
                self._connections.add(connection)
                connection.connecting = self._loop.create_task(connection.connect(host, port))
                return connection.client

            self._servers.append(await self._loop.create_server(accept, host, ours))

    def _reset(self) -> None:
        for connection in list(self._connections):
            connection.client.reset()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        self._reset()
        for connection in list(self._connections):
            connection.broker.reset()
        await asyncio.sleep(0)

    def __str__(self) -> str:
        counts = ", ".join(f"{shown(api)} {count}" for api, count in sorted(self.requests.items()))
        return f"proxy at {self.address} before {len(self.brokers)} brokers: {counts}"
