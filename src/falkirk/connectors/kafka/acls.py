"""Access-control lists: rights of a user on a cluster that guards its resources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from falkirk.connectors.kafka.config import Cluster, client
from falkirk.connectors.kafka.errors import translate
from falkirk.errors import ClusterError

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
    """Add to what is there. Raises ClusterError."""
    asked = {acl: _binding(acl) for acl in acls}
    futures = client(AdminClient, cluster.settings()).create_acls(list(asked.values()), request_timeout=30)
    for acl, binding in asked.items():
        try:
            futures[binding].result()
        except KafkaException as error:
            where = f"{acl.operation} on {acl.resource} {acl.name}"
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
