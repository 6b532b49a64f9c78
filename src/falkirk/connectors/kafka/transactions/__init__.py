"""The protocol's log, whose only writer owns the transaction.

log.py            the port `Log` on Kafka: begins, sends, commits, and finds out after a failure
delivery.py       how long to wait for a transaction whose records arrive slowly
marks.py          finds the end of a partition by a record that its leader acknowledges
standstills.py    reads that wait for an open transaction or lost records: logged, then given up
rewriting.py      writes chosen records again, exactly once
"""

from __future__ import annotations
