"""A schema registry, asked through Confluent's own client.

answer                              meaning
a schema; "no such schema" (40403)  an answer
no connection, time-out, 408, 429,  an outage: asked again until patience ends, then UnreachableError, which a run
5xx, a 404 with another code        survives; never taken for an answer
401, 403                            ConfigError: credentials
409, 422, anything else             ConfigError, in the registry's words
"""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from falkirk.blame import user_line
from falkirk.durations import DurationLike, duration
from falkirk.errors import ConfigError, DefinitionError, FalkirkError, UnreachableError
from falkirk.stream.formats.registry import Registered

logger = logging.getLogger("falkirk.registry")

_SETTINGS: Mapping[str, Any] = {"timeout": 5, "max.retries": 0}
"""Of the client, unless the user sets others: it would wait without end. Falkirk decides how often to ask."""
_HTTP = re.compile(r"\s*https?://")
_NO_SCHEMA, _NO_SUBJECT = 40403, 40401
_ABSENT = (_NO_SUBJECT, 40402, _NO_SCHEMA)
_PASSING = (408, 429)
_SECOND_LOOK = 1.0
"""Seconds after which an unknown id is asked for once more: a registry's copies may lag behind each other."""
_UNKNOWN_FOR = 60.0
"""Seconds for which an unknown id is not asked for again."""


class Registry:
    """A schema registry with Confluent's protocol, for `fk.Avro` and `fk.Protobuf`. It is asked when a schema is first
    needed.

    >>> Registry("https://ann:secret@registry:8081")
    Registry('https://registry:8081')
    """

    def __init__(self, url: str, settings: Mapping[str, Any] | None = None, *, patience: DurationLike = "20s") -> None:
        """`settings` are those of confluent-kafka's SchemaRegistryClient, for example "basic.auth.user.info" or
        "ssl.ca.location". They are never shown. `patience` is how long to ask again if the registry does not answer:
        "20s" or a timedelta. Raises DefinitionError for an address that is not one.
        """
        if not all(_HTTP.match(one) for one in str(url).split(",")):
            raise DefinitionError(
                "the registry's address does not begin with http:// or https://",
                where=f"fk.Registry ({user_line()})",
                hint='fk.Registry("http://registry:8081")',
            )
        self.url, self._settings = url, dict(settings or {})
        self.patience = duration(patience, "patience", where="fk.Registry")
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._made: Any = None
        self._known: dict[int, Registered] = {}
        self._unknown: dict[int, float] = {}

    def __repr__(self) -> str:
        return f"Registry({self._shown!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "_settings": self._settings, "patience": self.patience}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def schemas(self, ids: Collection[int]) -> dict[int, Registered | None]:
        """See `SchemaRegistry`. An unknown id is asked for twice, and then not again for a minute."""
        with self._lock:
            now = time.monotonic()
            new = [n for n in ids if n not in self._known and now - self._unknown.get(n, -_UNKNOWN_FOR) >= _UNKNOWN_FOR]
            missing = [number for number in new if not self._meet(number)]
            if missing:
                time.sleep(_SECOND_LOOK)
                self._unknown |= {number: time.monotonic() for number in missing if not self._meet(number)}
            return {number: self._known.get(number) for number in ids}

    def register(self, subject: str, schema: str, kind: str) -> int:
        """See `SchemaRegistry`."""
        from confluent_kafka.schema_registry import Schema

        number: int = self._ask(lambda c: c.register_schema(subject, Schema(schema, kind)), f"subject {subject}")
        return number

    def registered(self, subject: str, schema: str, kind: str) -> int:
        """See `SchemaRegistry`."""
        from confluent_kafka.schema_registry import Schema

        found = self._ask(lambda c: c.lookup_schema(subject, Schema(schema, kind)), f"subject {subject}", absent=True)
        if found is None:
            raise ConfigError(
                "the sink's schema is not registered, and register=False forbids to do so",
                where=f"subject {subject} of {self!r}",
                hint=f"register it: {schema}",
            )
        number: int = found.schema_id
        return number

    def check(self) -> None:
        """See `SchemaRegistry`."""
        self._ask(lambda client: client.get_schema_types(), "schemas/types")

    def _meet(self, number: int) -> bool:
        """Load a schema; False if none has this id."""
        found = self._ask(lambda client: client.get_schema(number), f"schema {number}", absent=True)
        if found is None:
            return False
        texts: dict[tuple[str, int], tuple[str, str]] = {}
        self._follow(found.references or (), texts)
        self._known[number] = Registered(found.schema_str, found.schema_type or "AVRO", tuple(texts.values()))
        return True

    def _follow(self, references: Collection[Any], texts: dict[tuple[str, int], tuple[str, str]]) -> None:
        """Add the schemas that others refer to, each before those."""
        for each in references:
            subject, version = each.subject, each.version
            if (subject, version) not in texts:
                where = f"subject {subject}, version {version}"
                found = self._ask(partial(_version, subject, version), where)
                self._follow(found.schema.references or (), texts)
                texts[subject, version] = (each.name, found.schema.schema_str)

    def _ask(self, question: Callable[[Any], Any], what: str, *, absent: bool = False) -> Any:
        """The answer; None if it says "not found" and `absent` allows that."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        began, told, pause = time.monotonic(), False, 0.1
        while True:
            try:
                return question(self._client)
            except SchemaRegistryError as error:
                if absent and error.http_status_code == 404 and error.error_code in _ABSENT:
                    return None
                if (refusal := self._refusal(error, what)) is not None:
                    raise refusal from None
                why = f"{error.http_status_code}: {' '.join(str(error.error_message).split())[:200]}"
                if error.http_status_code == 404:
                    why += " (is the URL right?)"
            except Exception as error:
                if not _passes(error):
                    raise
                why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            if time.monotonic() - began >= self.patience.total_seconds():
                raise UnreachableError(
                    f"the schema registry does not answer: {why}",
                    where=f"{what} of {self!r}",
                    hint="records wait until it does; none is lost",
                )
            if not told:
                logger.warning("the schema registry does not answer; retrying: %s (%s of %r)", why, what, self)
                told = True
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, 2.0)

    def _refusal(self, error: Any, what: str) -> FalkirkError | None:
        """The error that a retry cannot fix; None if it may pass."""
        status, where = error.http_status_code, f"{what} of {self!r}"
        said = " ".join(str(error.error_message).split())[:2000]
        if status in (401, 403):
            return ConfigError(
                f"the schema registry refuses the credentials ({status}): {said}",
                where=where,
                hint='give them: fk.Registry(url, {"basic.auth.user.info": "user:password"})',
            )
        if status >= 500 or status in _PASSING or (status == 404 and error.error_code not in _ABSENT):
            return None
        if status == 409:
            return ConfigError(
                f"the schema registry refuses the schema as incompatible: {said}",
                where=where,
                hint="change the sink's columns or schema, or the subject's compatibility",
            )
        return ConfigError(f"the schema registry refuses ({status}): {said}", where=where)

    @property
    def _client(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = self._connected()
            return self._made

    def _connected(self) -> Any:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"a schema registry needs {error.name}, which is not installed", hint="pip install 'falkirk[registry]'"
            ) from None
        try:
            return SchemaRegistryClient({**_SETTINGS, **self._settings, "url": self.url})
        except (ValueError, TypeError, OSError) as error:
            raise ConfigError(
                f"the registry's client refuses its settings: {error}",
                where=repr(self),
                hint="its settings are those of confluent_kafka.schema_registry.SchemaRegistryClient",
            ) from None

    @property
    def _shown(self) -> str:
        """The URL without the user."""
        return ",".join(map(_without_user, self.url.split(",")))


def _version(subject: str, version: int, client: Any) -> Any:
    return client.get_version(subject, version, deleted=True)


def _without_user(url: str) -> str:
    parts = urlsplit(url.strip())
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _passes(error: Exception) -> bool:
    """Whether a question failed because the registry is away, or something else answered."""
    from confluent_kafka.schema_registry.error import OAuthTokenError

    # The client uses one of two libraries, and both have this class.
    transport = any(kind.__name__ == "TransportError" for kind in type(error).__mro__)
    return transport or isinstance(error, OAuthTokenError | OSError | ValueError)
