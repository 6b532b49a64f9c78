"""How the server reads connections: as uvicorn does, within bounds. It needs the extra `http`."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD = 1 << 16
"""About how many bytes a client may send before its headers are complete, or between two pieces of a body."""


class Bounded(HttpToolsProtocol):
    """Ends the connection of a client that sends headers without end: uvicorn would keep all of them, before anything asks
    for a token. The headers behind a body count, too."""

    _idle = 0
    """Bytes that came since headers were complete, or since the last piece of a body."""

    def data_received(self, data: bytes) -> None:
        """Bytes have come. If they complete something, the count begins again meanwhile."""
        self._idle += len(data)
        super().data_received(data)
        if self._idle > HEAD and not self.transport.is_closing():
            self.send_400_response("The headers are too large.")

    def on_headers_complete(self) -> None:
        """The headers of a request are complete."""
        self._idle = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._idle = 0
        super().on_body(body)
