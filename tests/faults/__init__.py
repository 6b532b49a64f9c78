"""A Kafka proxy that injects faults, and trials of Falkirk behind it.

client ──▶ Proxy ──▶ broker        each request passes, or suffers a fault that a rule or the seed's plan chose
client ◀── Proxy ◀── broker        brokers' addresses in responses are replaced, so that clients stay behind the proxy

frames.py      requests and responses, as far as the proxy reads them
faults.py      what can be done to a request, by which rule, or by a plan that a seed decides
journal.py     what was done
connection.py  one client's connection to one broker
proxy.py       listens, in a thread of its own; `python -m tests.faults BROKERS` is a process of its own
trial.py       a flow behind the proxy, workers killed too, every output record checked
"""
