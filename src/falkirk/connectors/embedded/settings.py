"""The broker's two files of settings: server.properties and log4j2.properties.

The broker runs in its data folder and every path in them is relative to it, so that the folder may be moved and have
any name (a comma would end an entry of `log.dirs`, and these files are Latin-1).
"""

from __future__ import annotations

from collections.abc import Mapping

HOST = "127.0.0.1"  # loopback only: the broker asks nobody for a password

# One node must be enough for every internal topic, or the first transaction waits for replicas that never come.
_ONE_NODE = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

# Fewer internal partitions than a cluster's 50 make the first transaction, and the start after a crash, faster.
_SMALL_MACHINE = {
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "8",
    "share.coordinator.state.topic.num.partitions": "8",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "4",
}

# An hour, in place of 9 s: a pause of the one process must not make its controller give its broker up (recovery.py).
_NO_SESSION = {"broker.session.timeout.ms": "3600000"}

# A misspelt topic is an error, as on a guarded cluster, and not a new topic.
_STRICT = {"auto.create.topics.enable": "false"}

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

# The recovering controller (recovery.py) tells on its standard output what it has committed.
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
    broker = {
        "process.roles": "broker,controller",
        "inter.broker.listener.name": "BROKER",
        "listeners": f"BROKER://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"BROKER://{HOST}:{port}",
    }
    everything = {
        **_controller(log_dirs, controller_port),
        **broker,
        **_ONE_NODE,
        **_SMALL_MACHINE,
        **_NO_SESSION,
        **_STRICT,
        **extra,
    }
    return _text(everything)


def controller_properties(log_dirs: str, controller_port: int) -> str:
    """The same node as a controller alone, which gives a silent broker up after a tenth of a second."""
    alone = {"process.roles": "controller", "listeners": f"CONTROLLER://{HOST}:{controller_port}"}
    return _text({**_controller(log_dirs, controller_port), **alone, "broker.session.timeout.ms": "100"})


def _controller(log_dirs: str, port: int) -> dict[str, str]:
    return {
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": log_dirs,
    }


def _text(settings: dict[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())
