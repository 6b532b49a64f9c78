"""The server of the PostgreSQL connector's tests serves here too."""

from __future__ import annotations

from tests.connectors.postgres.conftest import name, postgres

__all__ = ["name", "postgres"]
