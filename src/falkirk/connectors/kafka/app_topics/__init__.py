"""Topics of an app beside steps and edges: control and epochs.

control.py    the control topic: layout, requests and reports
epochs.py     the topic of a batch part: its epochs, and how far their results are published
clocks.py     compares this host's clock with the broker's, by a record of the control topic
"""

from __future__ import annotations
