"""A broker that lets nobody in without a password, over TLS, and nobody do what no ACL allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from tests.ports import free_ports

from falkirk.connectors.embedded import EmbeddedKafka

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Secured:
    """Three doors to one broker."""

    back: str
    """For the tests' own clients, which may do everything."""
    front: str
    """SASL over TLS."""
    expired: str
    """The same, with a certificate that is out of date."""
    certificate: Path
    """Of the authority that clients are to trust."""
    other: Path
    """Of one that has certified nothing here."""
    admin: AdminClient
    node: EmbeddedKafka

    def user(self, name: str, password: str) -> None:
        """Make a user, who may do nothing yet."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsertion = UserScramCredentialUpsertion(name, info, password.encode())
        self.admin.alter_user_scram_credentials([upsertion])[name].result()

    @contextmanager
    def denied(self, user: str, operation: str, topic: str = "", *, group: str = "", id_: str = "") -> Iterator[None]:
        """Somebody may not do one thing, whatever else is allowed."""
        kind = ResourceType.TOPIC if topic else ResourceType.GROUP if group else ResourceType.TRANSACTIONAL_ID
        name, pattern, what = topic or group or id_, ResourcePatternType.LITERAL, AclOperation[operation]
        acl = AclBinding(kind, name, pattern, f"User:{user}", "*", what, AclPermissionType.DENY)
        self.admin.create_acls([acl])[acl].result()
        try:
            yield
        finally:
            found = AclBindingFilter(kind, name, pattern, f"User:{user}", "*", what, AclPermissionType.DENY)
            self.admin.delete_acls([found])[found].result()


@contextmanager
def secured(folder: Path) -> Iterator[Secured]:
    """A broker of the embedded kind with doors of its own."""
    ours, other = trustme.CA(), trustme.CA()
    for name, authority in (("ours", ours), ("other", other)):
        authority.cert_pem.write_to_path(folder / f"{name}.pem")
    _keystore(ours.issue_cert(HOST), folder / "front.pem")
    long_ago = {"not_before": datetime(2020, 1, 1, tzinfo=UTC), "not_after": datetime(2020, 2, 1, tzinfo=UTC)}
    _keystore(ours.issue_cert(HOST, **long_ago), folder / "expired.pem")
    back, front, expired, controller = free_ports(4)
    ports = {"BROKER": back, "FRONT": front, "EXPIRED": expired}
    listeners = [f"{name}://{HOST}:{port}" for name, port in ports.items()]
    with EmbeddedKafka(folder / "kafka", back, settings=_settings(folder, listeners, controller)) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        doors = kafka.bootstrap, f"{HOST}:{front}", f"{HOST}:{expired}"
        yield Secured(*doors, folder / "ours.pem", folder / "other.pem", admin, kafka)


def _settings(folder: Path, listeners: list[str], controller: int) -> Mapping[str, str]:
    found = {
        "listeners": ",".join([*listeners, f"CONTROLLER://{HOST}:{controller}"]),
        "advertised.listeners": ",".join(listeners),
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,FRONT:SASL_SSL,EXPIRED:SASL_SSL",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "group.min.session.timeout.ms": "500",
    }
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    for name in ("front", "expired"):
        door = f"listener.name.{name}"
        found |= {
            f"{door}.ssl.keystore.type": "PEM",
            f"{door}.ssl.keystore.location": str(folder / f"{name}.pem"),
            f"{door}.scram-sha-512.sasl.jaas.config": scram,
            f"{door}.oauthbearer.sasl.jaas.config": bearer,
        }
    return found


def _keystore(certificate: trustme.LeafCert, path: Path) -> None:
    """Key and chain in one file. Java takes keys in PKCS #8 alone."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + chain)
