"""The HTTP side of a gateway: requests in, replies and events out. What is done with a request is in
`falkirk.runtime.gateway`.

messages.py     a request as it came, a reply, and events for a subscriber
app.py          the ASGI application: paths, tokens, limits, errors as JSON
events.py       server-sent events
ports.py        what the server gives to the application
server.py       the server that runs it: addresses, TLS
protocol.py     how it reads connections
"""

from __future__ import annotations
