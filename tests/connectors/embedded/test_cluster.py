"""Three nodes are one cluster, which outlives any one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from tests.connectors.embedded.test_node import read, write_in_a_transaction
from tests.kafka_cluster import EmbeddedCluster
from tests.waiting import PATIENCE_S


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(1200)
def test_transactions_go_on_whichever_node_is_killed(tmp_path: Path) -> None:
    with EmbeddedCluster(tmp_path, console=Console(quiet=True)) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", 3, -1)])["t"].result(PATIENCE_S)
        cluster.whole()
        expected: list[bytes | None] = []
        for node in cluster.nodes:
            node.kill()
            cluster.given_up(node)
            values = [b"%d of node %d's absence" % (n, node.number) for n in range(2)]
            write_in_a_transaction(cluster.bootstrap, "t", values, partition=0)
            expected += values
            node.start()
            cluster.whole()
            led = {p.leader for p in admin.list_topics("t", timeout=PATIENCE_S).topics["t"].partitions.values()}
            assert node.number not in led
            assert cluster.balance() > 0
        assert read(cluster.bootstrap, "t", len(expected)) == expected
