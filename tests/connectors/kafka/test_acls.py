from __future__ import annotations

from collections.abc import Callable

import pytest

from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.connectors.kafka.admin.acls import rights_on_groups
from falkirk.connectors.kafka.client.config import Cluster


@pytest.mark.slow
@pytest.mark.kafka
def test_rights_on_a_group_are_told_by_a_broker_that_has_just_started(embedded: Callable[..., EmbeddedKafka]) -> None:
    # It makes the topic of groups only now, and says at first that it coordinates none.
    brokers = embedded().start()
    assert rights_on_groups(Cluster(brokers), ["g"])["g"] >= {"READ", "DESCRIBE"}
