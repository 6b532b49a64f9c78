"""The HTTP side of a gateway: requests in, replies out. What is done with a request is in `falkirk.runtime.gateway`.

messages.py     a request as it came, and a reply
app.py          the ASGI application: paths, tokens, limits, errors as JSON
server.py       the server that runs it: addresses, TLS
"""

from __future__ import annotations
