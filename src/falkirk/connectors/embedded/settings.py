"""The broker's two settings files: server.properties and log4j2.properties.

The broker runs in its data folder, and all their paths are relative to it. So the folder may be moved and have any name
(a comma would end an entry of `log.dirs`, and these files are Latin-1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

HOST = "127.0.0.1"  # loopback only: the broker asks nobody for a password


def replicated(nodes: int) -> dict[str, str]:
    """A replica on every node; one may be away. With more replicas than nodes, the first transaction would wait for
    replicas that never come."""
    replicas, least = str(nodes), str(max(1, nodes - 1))
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": least,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": least,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": least,
    }


# Fewer internal partitions than a cluster's 50 make the first transaction, and the start after a crash, faster.
SMALL_MACHINE = {
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "8",
    "share.coordinator.state.topic.num.partitions": "8",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "4",
}

# An hour instead of 9 s: a pause of the one process must not make its controller give its broker up (recovery.py).
_NO_SESSION = {"broker.session.timeout.ms": "3600000"}

# A misspelt topic is an error, as on a guarded cluster, not a new topic.
STRICT = {"auto.create.topics.enable": "false"}

# At most four files of 10 MB.
LOGGING_PROPERTIES = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = kafka.log
appender.file.filePattern = kafka.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""

# The recovering controller (recovery.py) prints what it has committed to standard output.
RECOVERY_LOGGING_PROPERTIES = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
logger.controller.name = org.apache.kafka.controller.QuorumController
logger.controller.level = debug
"""


def server_properties(log_dirs: str, port: int, controller_port: int, extra: Mapping[str, str]) -> str:
    """The text of server.properties for one node that is broker and controller; `extra` settings win.

    >>> text = server_properties("data", 9092, 9093, {"message.max.bytes": "2000000"})
    >>> [line for line in text.splitlines() if line.startswith(("listeners", "message"))]
    ['listeners=BROKER://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093', 'message.max.bytes=2000000']
    """
    everything = {
        **controller(log_dirs, 1, (controller_port,)),
        **broker(port, controller_port),
        **replicated(1),
        **SMALL_MACHINE,
        **_NO_SESSION,
        **STRICT,
        **extra,
    }
    return as_text(everything)


def broker(port: int, controller_port: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "inter.broker.listener.name": "BROKER",
        "listeners": f"BROKER://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"BROKER://{HOST}:{port}",
    }


def controller_properties(log_dirs: str, controller_port: int) -> str:
    """The same node as only a controller, which gives a silent broker up after a tenth of a second."""
    alone = {"process.roles": "controller", "listeners": f"CONTROLLER://{HOST}:{controller_port}"}
    return as_text({**controller(log_dirs, 1, (controller_port,)), **alone, "broker.session.timeout.ms": "100"})


def controller(log_dirs: str, number: int, ports: Sequence[int]) -> dict[str, str]:
    return {
        "node.id": str(number),
        "controller.quorum.voters": ",".join(f"{n}@{HOST}:{port}" for n, port in enumerate(ports, start=1)),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": log_dirs,
    }


def as_text(settings: dict[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())
