"""Rows that cannot be sent, without a broker."""

from __future__ import annotations

from typing import Any

import pytest
from tests.runtime.gateway.test_appender import break_for_good

import falkirk as fk
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.errors import ClusterError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.inspect.sending import Sender


class There:
    """Topics that exist."""

    def there(self, topic: str, hint: str) -> TopicInfo:
        return TopicInfo(topic, "id", 2)


def test_a_producer_that_is_broken_for_good_is_an_error_in_words() -> None:
    flow = fk.Flow("f")
    flow.source("bids", value=fk.Json({"n": int})).sink("out", value=fk.Json())
    topics: Any = There()
    sender = Sender(flow.plan(), None, Settings("127.0.0.1:1", ""), topics)
    try:
        break_for_good(sender._producer)
        with pytest.raises(ClusterError, match="the broker has lost records") as caught:
            sender.send([b'{"n": 1}'])
        assert "0 records acknowledged" in caught.value.hint
        with pytest.raises(ClusterError, match="the broker has lost records"):
            sender.settle()
    finally:
        sender._producer.purge()
