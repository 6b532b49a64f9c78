"""Records of the control topic."""

from __future__ import annotations

import pytest

from falkirk.checkpoint.ids import TopicPartition
from falkirk.connectors.kafka.app_topics.control import append
from falkirk.connectors.kafka.client.config import LARGEST, Cluster
from falkirk.errors import ClusterError


def test_a_record_that_is_too_large_is_an_error_in_words() -> None:
    with pytest.raises(ClusterError, match="a record is larger than the broker or its topic accepts"):
        append(Cluster("localhost:1"), TopicPartition("control", 0), b"key", bytes(LARGEST + 1))
