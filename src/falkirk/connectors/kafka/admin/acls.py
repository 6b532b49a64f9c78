"""Access-control lists: a user's rights on a cluster that guards its resources."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from falkirk.checkpoint.ids import OwnerId
from falkirk.connectors.kafka.client.clients import client
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.errors import LOADING, translate
from falkirk.connectors.kafka.client.producing import TransactionalProducer
from falkirk.errors import ClusterError

LOADING_S = 10.0
"""How long a group's coordinator may take to load its groups."""

_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}


class Acl(NamedTuple):
    """A user may do something."""

    principal: str
    """User:NAME."""
    resource: str
    """topic, group or transactional-id."""
    name: str
    prefixed: bool
    operation: str
    """READ, DESCRIBE_CONFIGS, …"""


def grant(cluster: Cluster, acls: Iterable[Acl]) -> None:
    """Add to the ACLs. Raises ClusterError."""
    asked = {acl: _binding(acl) for acl in acls}
    admin = client(AdminClient, cluster.settings())
    futures = admin.create_acls(list(asked.values()), request_timeout=30)
    for acl, binding in asked.items():
        try:
            futures[binding].result()
        except KafkaException as error:
            place = f" of cluster {cluster.name}" if cluster.name else ""
            where = f"{acl.operation} on {acl.resource} {acl.name}{place}"
            raise translate(error.args[0], where) or ClusterError(
                f"the cluster does not take an ACL: {error.args[0].str()}",
                where=where,
                hint="has it an authorizer, and may this user ALTER the cluster?",
            ) from error


def _binding(acl: Acl) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if acl.prefixed else ResourcePatternType.LITERAL
    operation = AclOperation[acl.operation]
    return AclBinding(
        _RESOURCES[acl.resource], acl.name, pattern, acl.principal, "*", operation, AclPermissionType.ALLOW
    )


def rights_on_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, set[str]]:
    """What this user may do with existing topics. Raises ClusterError."""
    wanted = sorted(names)
    admin = client(AdminClient, cluster.settings())
    asked = admin.describe_topics(TopicCollection(wanted), include_authorized_operations=True) if wanted else {}
    return _rights(asked, "topic")


def rights_on_groups(cluster: Cluster, names: Iterable[str]) -> dict[str, set[str]]:
    """What this user may do with groups. A cluster may know nothing of groups that nobody has joined yet. Raises
    ClusterError."""
    admin = client(AdminClient, cluster.settings())
    deadline = time.monotonic() + LOADING_S
    while True:
        asked = admin.describe_consumer_groups(sorted(names), include_authorized_operations=True, request_timeout=2)
        failed = [e for future in asked.values() if isinstance(e := future.exception(), KafkaException)]
        if (
            not any(e.args[0].code() in (*LOADING, KafkaError._TIMED_OUT) for e in failed)
            or time.monotonic() > deadline
        ):
            return _rights(asked, "group")
        time.sleep(0.1)


def _rights(asked: Mapping[str, Future[Any]], kind: str) -> dict[str, set[str]]:
    found = {}
    for name, future in asked.items():
        try:
            found[name] = {operation.name for operation in future.result().authorized_operations or ()}
        except KafkaException as error:
            if error.args[0].code() in _UNKNOWN and kind == "group":
                continue
            if error.args[0].code() not in _REFUSED:
                where = f"{kind} {name}"
                words = f"{error.args[0].name()} {error.args[0].str()}"
                raise translate(error.args[0], where) or ClusterError(words, where=where) from error
            found[name] = set()
    return found


def may_write_as(cluster: Cluster, owner: OwnerId) -> None:
    """Try to initialise a transactional producer. Raises ClusterError."""
    producer = client(TransactionalProducer, {**cluster.settings(), "transactional.id": owner})
    try:
        producer.init_transactions(10)
    except KafkaException as error:
        where = f"transactional id {owner}"
        raise translate(error.args[0], where) or ClusterError(error.args[0].str(), where=where) from error


_UNKNOWN = (KafkaError._TIMED_OUT, KafkaError.GROUP_ID_NOT_FOUND, KafkaError.COORDINATOR_NOT_AVAILABLE)
_REFUSED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
