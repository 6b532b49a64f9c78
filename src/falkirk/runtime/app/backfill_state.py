"""The app's backfill, as its log tells.

The layout records that it exists before it is opened. Both are read from their partitions' leaders up to their high
watermarks, so the answer has all that was written before the question: a broker's metadata may be old.
"""

from __future__ import annotations

from contextlib import closing

from falkirk.checkpoint.backfill import backfilled
from falkirk.checkpoint.driver import run
from falkirk.checkpoint.epochs import Epochs, catch_up
from falkirk.checkpoint.ids import TopicPartition
from falkirk.checkpoint.ports import Backfilled
from falkirk.connectors.kafka.app_topics.control import ControlTopic
from falkirk.connectors.kafka.app_topics.epochs import KafkaEpochLog
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.runtime.app.app import App
from falkirk.runtime.layout.layout import read_layout
from falkirk.stream.definition.names import BACKFILL


def look(app: App, cluster: Cluster) -> Backfilled | None:
    """The complete backfill; None if there is none. Raises StateError while it is open."""
    topic = app.backfill or _recorded(app, cluster)
    return None if topic is None else backfilled(read(topic, cluster), f"topic {topic}")


def read(topic: str, cluster: Cluster) -> Epochs:
    """All that a backfill's topic holds."""
    epochs = Epochs()
    with closing(KafkaEpochLog(cluster)) as log:
        run(catch_up(log, TopicPartition(topic, 0), epochs))
    return epochs


def _recorded(app: App, cluster: Cluster) -> str | None:
    """The topic's name, if the layout has one by now."""
    with closing(ControlTopic(cluster, app.control)) as control:
        layout = read_layout(control)
    names = {} if layout is None else layout.topics
    wanted = (
        name for name, t in names.items() if t.role == "epochs" and name.endswith(f".{app.name}.epochs.{BACKFILL}")
    )
    return next(wanted, None)
