"""The gateway of an app: it appends requests to a topic, and gives the answers that the flow writes to another. It gives the
records of sinks to subscribers.

    request ──▶ connectors/http ──▶ desk ──answer known──▶ reply
                                     │ └──wait──▶ … ◀── tail ◀── topic of answers, read_committed
                                     └──batch──▶ appender ──▶ topic of requests

The rule for what a gateway says of a key (docs/internals/http.md has all of them, and why they hold):

    reply(key, body) = 200 and the rows of answer(key)     if digest(body) = digest of answer(key)
                       422                                 if not
    answer(key)      = the first record under the key in the topic of answers with a digest, and the first with rows

    topic of a sink, read_committed ──follower, from a position──▶ events, each with the position behind it ──▶ subscriber

No reply and no event depends on anything that another gateway cannot read: a client may ask any of them, and again another.

gateway.py          a gateway's process: its parts, and when it is ready
topics.py           waits for the app's topics, and watches them
desk.py             what becomes of a request, and who waits for what
answers.py          records of answers, and what they say together
table.py            the answers, on disk
tail.py             reads the topic of answers
recording.py        makes records of requests, and reduces their rows
appender.py         appends them
health.py           whether the app can answer now
subscriptions.py    who may subscribe to what, and how many
follower.py         reads a sink's topic for one subscriber
decoded.py          records as JSON, for all subscribers of a sink
positions.py        where a subscriber is, as text
metrics.py          subscribers and rows, for Prometheus
options.py          how a gateway is run
"""

from __future__ import annotations
