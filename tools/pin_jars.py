"""Write the list of jars that the embedded Kafka is made of, each with its size and SHA-256: `make lock` runs it.

The list is what users' machines download and check, so that nothing is resolved there. Change VERSION, run it, read
the difference, and commit it.
"""

from __future__ import annotations

import hashlib
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jgo.maven import MavenContext

VERSION = "4.3.0"
TARGET = Path(__file__).parents[1] / "src/falkirk/connectors/embedded/jars.lock"


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        maven = MavenContext(repo_cache=Path(scratch), timeout=60)
        # Resolved alone: beside another input the resolver would take that one's managed versions for Kafka's own.
        kafka, others = maven.resolver.resolve([maven.create_dependency(f"org.apache.kafka:kafka_2.13:{VERSION}")])
        jars = {f"{d.groupId}:{d.artifactId}:{d.version}" for d in (*kafka, *others)}
        log4j = next(d.version for d in others if d.artifactId == "log4j-core")
        jars.add(f"org.apache.logging.log4j:log4j-slf4j-impl:{log4j}")  # without it the broker logs nothing

        def pinned(jar: str) -> str:
            content = maven.create_dependency(jar).artifact.resolve().read_bytes()
            return f"{hashlib.sha256(content).hexdigest()} {len(content)} {jar}\n"

        with ThreadPoolExecutor(8) as pool:
            lines = list(pool.map(pinned, sorted(jars)))
    head = f"# Apache Kafka {VERSION}: SHA-256, bytes, group:artifact:version. Made by tools/pin_jars.py.\n"
    TARGET.write_text(head + "".join(lines))


if __name__ == "__main__":
    main()
