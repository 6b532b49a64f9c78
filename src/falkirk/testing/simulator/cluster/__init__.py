"""A Kafka cluster in memory, as workers see it.

broker.py         the cluster: requests, and what it still has to do by itself
partition.py      a partition: records, markers, and what a reader of each isolation level sees
coordinator.py    the transaction coordinator
group.py          a consumer group with static members
log.py            the port `Log`: one worker's producer and consumers
line.py           a slow line, or a quota, between a worker and the brokers
"""

from __future__ import annotations
