"""One client's connection to one broker, and the faults that hit what goes over it.

    client side ──frames──▶ request()  ──▶ broker side
    client side ◀── response() ◀──frames── broker side

A side hands its frames over one by one. While it is stopped (a DELAY, a held request on its way) its frames wait, and so
does everything behind them: that is TCP's order. Once the client has gone, the connection to the broker stays open until
the broker has answered what it was asked, held requests included.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tests.faults.faults import At, Fault, Frame, Line
from tests.faults.frames import Api, Request, Splitter, correlation_of, error_of, request_of

if TYPE_CHECKING:
    from tests.faults.proxy import Proxy

LINGER_S = 15.0
"""How long the connection to a broker outlives the client's at most, while answers are due."""
ANSWER_S = 3.0
"""How long others wait for the broker's answer to a held request."""


class Side(asyncio.Protocol):
    """One end of a connection: takes frames in, and sends frames out."""

    def __init__(self, take: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self._take, self._lost = take, lost
        self._frames, self._waiting, self._stops = Splitter(), deque[bytes](), 0
        self._ended = False
        self.transport: asyncio.Transport | None = None
        self.peer: Side | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is somebody on the other end."""
        return self.transport is not None and not self.transport.is_closing()

    def send(self, frame: bytes) -> None:
        """Send a frame, if there is anybody to get it."""
        if self.transport is not None and self.is_open and not self._ended:
            self.transport.write(frame)

    def stop(self) -> None:
        """Hand over no more frames, until `go` has been called as often."""
        self._stops += 1

    def go(self) -> None:
        """See `stop`."""
        self._stops -= 1
        self._work()

    def half_close(self) -> None:
        """Send what was given, and then FIN."""
        if self.transport is not None and self.is_open and not self._ended:
            self.transport.write_eof()
            self._ended = True

    def close(self) -> None:
        """Send what was given, and close."""
        self._waiting.clear()
        if self.transport is not None:
            self.transport.close()

    def reset(self) -> None:
        """Close with an RST; what was given and not sent is lost."""
        self._waiting.clear()
        if self.transport is not None:
            raw = self.transport.get_extra_info("socket")
            if raw is not None and raw.fileno() >= 0:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._waiting.extend(self._frames.feed(data))
        self._work()

    def connection_lost(self, _: Exception | None) -> None:
        self._waiting.clear()
        self._lost()

    def pause_writing(self) -> None:
        """Who reads slowly is not sent more than is in the buffers."""
        if self.peer is not None and self.peer.transport is not None and self.peer.is_open:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        """See `pause_writing`."""
        if self.peer is not None and self.peer.transport is not None and self.peer.is_open:
            self.peer.transport.resume_reading()

    def _work(self) -> None:
        while self._waiting and not self._stops:
            self._take(self._waiting.popleft())


@dataclass(slots=True, eq=False)
class Held:
    """A request that the proxy keeps."""

    request: Request
    fault: Fault
    frame: bytes
    connection: Connection
    ended: bool = False
    """Its transaction has ended since: what follows of the same transactional id is of the next one."""
    over: bool = False
    """It has been delivered, or cannot be."""

    def see(self, request: Request) -> None:
        """A later request has come."""
        if request.transactional_id == self.request.transactional_id:
            self.ended |= request.api in (Api.END_TXN, Api.INIT_PRODUCER_ID)

    def waits_for(self, request: Request, at: At) -> bool:
        """Whether it is delivered with this request."""
        until = self.fault.until
        return (
            until is not None
            and self.ended
            and (request.api, at) == (until.api, until.at)
            and request.transactional_id == self.request.transactional_id
        )


@dataclass(slots=True)
class Due:
    """An answer that the broker owes."""

    request: Request
    fault: Fault | None = None
    """What happens to the answer."""
    copies: int = 1
    """So many come; the client gets the first."""
    given: bool = False
    told: Callable[[bytes], None] | None = None
    """Who gets it in the client's place."""
    before: Sequence[Held] = ()
    """What is delivered before the client gets this answer."""


class Connection:
    """Relays frames. Everything here runs in the proxy's event loop."""

    def __init__(self, proxy: Proxy, number: int, broker: int) -> None:
        self.proxy, self.number, self.place = proxy, number, broker
        self.loop = asyncio.get_running_loop()
        self.client = Side(self.request, self.client_lost)
        self.broker = Side(self.response, self.broker_lost)
        self.client.peer, self.broker.peer = self.broker, self.client
        self.due: dict[int, Due] = {}
        self.held: list[Held] = []
        self.connecting: asyncio.Task[None] | None = None
        self.client.stop()  # until there is a connection to the broker

    async def connect(self, host: str, port: int) -> None:
        """Connect to the broker; where there is none the client is reset."""
        try:
            await self.loop.create_connection(lambda: self.broker, host, port)
        except OSError:
            self.client.reset()
            self.proxy.forget(self)
            return
        self.client.go()
        self.close_when_done()  # the client may have gone by now

    # -- requests ------------------------------------------------------------------------------------------------------

    def request(self, frame: bytes) -> None:
        """The client asks."""
        request, fault = self.proxy.arrived(request_of(frame), self)
        self.after(self.proxy.released(request, At.REQUEST), self.client, lambda: self.pass_on(frame, request, fault))

    def pass_on(self, frame: bytes, request: Request, fault: Fault | None) -> None:
        """Send a request to the broker, or do to it what its fault says."""
        if fault is None or fault.at is At.RESPONSE:
            self.ask(frame, Due(request, fault))
            return
        self.proxy.journal.fault(str(fault), request)
        match fault.frame:
            case Frame.PASS:
                self.ask(frame, Due(request))
            case Frame.DUPLICATE:
                self.ask(frame + frame, Due(request, copies=2))
            case Frame.HOLD:
                held = Held(request, fault, frame, self)
                self.held.append(held)
                self.proxy.hold(held)
            case Frame.DELAY:
                self.later(fault.seconds, self.client, lambda: self.ask(frame, Due(request)))
            case Frame.DROP:
                pass
        self.break_line(fault, self.broker)

    def ask(self, frame: bytes, due: Due) -> None:
        """Send a request to the broker."""
        due.before = self.proxy.released(due.request, At.RESPONSE)
        self.due[due.request.correlation] = due
        self.broker.send(frame)

    def deliver(self, held: Held, then: Callable[[], None]) -> None:
        """Send a request that was held, and go on when the broker has answered."""

        def told(response: bytes) -> None:
            self.proxy.journal.add("answered", held.request, error_of(response, held.request))
            then()

        if held.over:
            then()
            return
        self.proxy.journal.add("delivered", held.request)
        self.let_go(held)
        self.due[held.request.correlation] = Due(held.request, told=told)
        self.broker.send(held.frame)

    # -- responses -----------------------------------------------------------------------------------------------------

    def response(self, frame: bytes) -> None:
        """The broker answers."""
        correlation = correlation_of(frame)
        due = self.due[correlation]
        due.copies -= 1
        if not due.copies:
            del self.due[correlation]
        if not due.given:
            due.given = True
            if due.told is not None:
                due.told(frame)
            else:
                self.after(due.before, self.broker, lambda: self.answer(frame, due))
        self.close_when_done()

    def answer(self, frame: bytes, due: Due) -> None:
        """Send a response to the client, or do to it what its fault says."""
        frame, fault = self.proxy.rewritten(frame, due.request), due.fault
        if fault is None:
            self.client.send(frame)
            return
        self.proxy.journal.fault(str(fault), due.request)
        match fault.frame:
            case Frame.PASS:
                self.client.send(frame)
            case Frame.DUPLICATE:
                self.client.send(frame + frame)
            case Frame.DELAY:
                self.later(fault.seconds, self.broker, lambda: self.client.send(frame))
            case _:
                pass
        self.break_line(fault, self.client)

    # -- time ----------------------------------------------------------------------------------------------------------

    def later(self, seconds: float, side: Side, do: Callable[[], None]) -> None:
        """Do something after a time, in which nothing more is taken from the side."""

        def end() -> None:
            do()
            side.go()

        side.stop()
        self.loop.call_later(seconds, end)

    def after(self, held: Sequence[Held], side: Side, do: Callable[[], None]) -> None:
        """Do something when held requests have been delivered and answered, and take nothing from the side until then."""
        if not held:
            do()
            return
        left = set(held)

        def answered(one: Held) -> None:
            if one in left:
                left.remove(one)
                if not left:
                    do()
                    side.go()

        def give_up() -> None:
            for one in list(left):
                answered(one)

        side.stop()
        self.loop.call_later(ANSWER_S, give_up)
        for one in held:
            one.connection.deliver(one, lambda one=one: answered(one))  # type: ignore[misc]

    # -- ends ----------------------------------------------------------------------------------------------------------

    def break_line(self, fault: Fault, there: Side) -> None:
        """Do to the connection what a fault says; `there` is where its frame went."""
        if fault.line is Line.RESET:
            self.client.reset()
        elif fault.line is Line.HALF_CLOSE:
            there.half_close()

    def client_lost(self) -> None:
        """The client has gone, or was reset."""
        self.close_when_done()
        self.loop.call_later(LINGER_S, self.broker.close)

    def broker_lost(self) -> None:
        """The broker has gone: what it had not answered it never will."""
        for held in self.held.copy():
            self.proxy.journal.add("lost", held.request)
            self.let_go(held)
        self.due.clear()
        self.client.close()
        self.proxy.forget(self)

    def let_go(self, held: Held) -> None:
        """Keep a request no longer."""
        held.over = True
        self.held.remove(held)

    def close_when_done(self) -> None:
        """Close the connection to the broker when the client has gone, and nothing is due."""
        if not self.client.is_open and not self.due and not self.held:
            self.broker.close()
