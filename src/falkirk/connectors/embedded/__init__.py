"""A real Apache Kafka for development and tests: a KRaft node on loopback, started by Falkirk itself.

EmbeddedKafka ── node.py      the life cycle: format once, start, stop, kill
    ├── jars.py               the jars: downloaded once for each user, checked, then offline
    ├── maven.py              one file from Maven Central, a mirror, or the user's own Maven repository
    ├── jvm.py                a fast start of the JVM, with its classes from an archive made once
    ├── settings.py           server.properties and log4j2.properties
    ├── recovery.py           after a crash: what must happen before the broker starts again
    ├── process.py            the JVM as a process: detached, or ended with the process that started it
    └── trouble.py            what prevents a start, in clear words
"""

from __future__ import annotations

from importlib.util import find_spec

from falkirk.errors import ConfigError

if not all(find_spec(name) for name in ("jgo", "platformdirs", "psutil")):
    raise ConfigError("the embedded Kafka is not installed", hint="pip install 'falkirk[kafka]'")

from falkirk.connectors.embedded.jars import fetch_jars, kafka_version
from falkirk.connectors.embedded.node import EmbeddedKafka, NodeStatus, prepared_jvm

__all__ = ["EmbeddedKafka", "NodeStatus", "fetch_jars", "kafka_version", "prepared_jvm"]
