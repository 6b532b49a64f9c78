"""Whose each setting of Kafka's clients is."""

from __future__ import annotations

import pytest

from falkirk.checkpoint.ids import OwnerId
from falkirk.connectors.kafka.client.config import OWN, Cluster
from falkirk.errors import ConfigError

OWNER = OwnerId("a")


def test_what_the_user_sets_wins() -> None:
    plain, given = Cluster("b:1"), Cluster("b:1", {"compression.type": "zstd", "linger.ms": 1, "fetch.wait.max.ms": 7})
    assert plain.producer(OWNER, 1, 1000)["compression.type"] == "lz4"
    written, read = given.producer(OWNER, 1, 1000), given.source()
    assert (written["compression.type"], written["linger.ms"], read["fetch.wait.max.ms"]) == ("zstd", 1, 7)


@pytest.mark.parametrize("name", sorted(OWN))
def test_what_the_protocol_rests_on_is_not_the_users_to_set(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be set: exactly-once depends on it"):
        Cluster("b:1", {name: "x"})


def test_all_that_the_clients_are_made_with_is_one_or_the_other() -> None:
    """A setting of the user's that a client overrides would be passed over without a word."""
    cluster = Cluster("b:1")
    made = [cluster.producer(OWNER, 1, 1000), cluster.source(), cluster.member("g", "i", 1000)]
    tunable = {name for client in made for name in client} - OWN - {"bootstrap.servers"}
    given = Cluster("b:1", dict.fromkeys(tunable, "mine"))
    again = [given.producer(OWNER, 1, 1000), given.source(), given.member("g", "i", 1000)]
    lost = {name for client in again for name, value in client.items() if name in tunable and value != "mine"}
    assert lost == {
        "batch.num.messages",
        "batch.size",
        "heartbeat.interval.ms",
        "message.max.bytes",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
    }
