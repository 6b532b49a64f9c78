"""Settings from outside the command line: from a settings file (falkirk.toml), and from the environment.

    --workers 4    before    FALKIRK_WORKERS=4         before    workers = 4            before    the default
    --set K=V      before    FALKIRK_KAFKA_K=V         before    k = "V" in [kafka]
    --cluster X=…  before    FALKIRK_CLUSTER_X_BROKERS before    brokers in [cluster.X]
                             FALKIRK_CLUSTER_X_KAFKA_K before    k = "V" in [cluster.X.kafka]
                             FALKIRK_DATABASE_X_URL    before    url in [database.X]
    --spark-set    before    FALKIRK_SPARK_SET="K=V"   before    k = "V" in [spark]

A value may come from elsewhere, so that the file holds no secret: `{env = "NAME"}`, `{file = "PATH"}`.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from falkirk.blame import did_you_mean
from falkirk.checkpoint.ids import CLUSTER
from falkirk.connectors.kafka.client.config import Cluster, cluster_env
from falkirk.errors import ConfigError
from falkirk.stream.definition.names import DATABASE

USUAL = Path("falkirk.toml")
"""The default settings file."""

ENV = "FALKIRK_"
CLIENT = f"{ENV}KAFKA_"
"""The rest of the name is a setting of librdkafka: FALKIRK_KAFKA_SASL_PASSWORD is sasl.password."""

_CLUSTERS = f"{ENV}CLUSTER_"
_BROKERS = re.compile(rf"{_CLUSTERS}([A-Z0-9_]+)_BROKERS")
"""Matches a variable of a cluster, with its name."""

_DATABASE = re.compile(rf"{ENV}DATABASE_([A-Z0-9_]+)_URL")
"""Matches the variable of a database, with its name."""

_OTHERS = ("CONFIG", "CACHE")
_SERVICE = re.compile(r"(SERVICE_HOST|SERVICE_PORT|PORT)(_|$)")
"""What Kubernetes gives every pod for a service, which may be called falkirk-kafka."""

_ABOUT_CLUSTER = re.compile(rf"{_CLUSTERS}[A-Z0-9_]+_(BROKERS|KAFKA_.+)")

NAMES = "use up to 50 small letters, digits and dashes, as the flow has it"
"""For clusters and databases."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The settings of a settings file and the environment. Values are read when they are needed: a command that needs the
    cluster's needs none of Spark's secrets."""

    where: str = ""
    """The file's name."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """By the long names of options, without dashes."""
    kafka: Mapping[str, Any] = field(default_factory=dict, repr=False)
    clusters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """Of the other clusters, by name: `brokers`, and its client's settings under their own names."""
    spark: Mapping[str, Any] = field(default_factory=dict, repr=False)
    urls: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Of databases, by name."""
    alone: bool = False
    """Whether it is for a Kafka of this machine, to which the client settings of another do not apply."""

    def client(self, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
        """librdkafka's settings. Raises ConfigError.

        >>> given = ConfigFile("falkirk.toml", kafka={"sasl.username": "app", "sasl.password": {"env": "PASSWORD"}})
        >>> given.client({"PASSWORD": "hush", "FALKIRK_KAFKA_SASL_USERNAME": "shop"})
        {'sasl.username': 'shop', 'sasl.password': 'hush'}
        """
        return {} if self.alone else self._client(CLIENT, self.kafka, "[kafka]", environment)

    def others(self, flags: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> dict[str, Cluster]:
        """The other clusters. `flags` are the addresses that the command line gives, by name. Raises ConfigError.

        >>> given = ConfigFile("falkirk.toml", clusters={"sales": {"brokers": "a:9092", "sasl.username": "app"}})
        >>> found = given.others({"hr": "b:9092"}, {"FALKIRK_CLUSTER_SALES_KAFKA_SASL_USERNAME": "shop"})
        >>> {name: (cluster.brokers, cluster.client) for name, cluster in found.items()}
        {'hr': ('b:9092', {}), 'sales': ('a:9092', {'sasl.username': 'shop'})}
        """
        if self.alone:
            return {name: Cluster(brokers, name=name) for name, brokers in flags.items()}
        in_environment = {m[1].lower().replace("_", "-") for name in environment if (m := _BROKERS.fullmatch(name))}
        found = {}
        for name in sorted({*flags, *self.clusters, *in_environment}):
            table, begins, where = dict(self.clusters.get(name, {})), cluster_env(name), f"[cluster.{name}]"
            written = table.pop("brokers", "")
            if not (brokers := flags.get(name) or environment.get(f"{begins}BROKERS") or written):
                raise ConfigError(
                    f"cluster {name!r} has settings, and no addresses",
                    where=f"{self.where}, {where}",
                    hint='write brokers = "HOST:PORT,…" there',
                )
            client = self._client(f"{begins}KAFKA_", table, f"[cluster.{name}.kafka]", environment)
            found[name] = Cluster(value_of(brokers, f"{self.where}, {where} brokers", environment), client, name)
        return found

    def databases(self, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
        """The addresses of databases. Raises ConfigError.

        >>> given = ConfigFile("falkirk.toml", urls={"shop": {"env": "SHOP"}, "hr": "postgresql://hr"})
        >>> given.databases({"SHOP": "postgresql://shop", "FALKIRK_DATABASE_HR_URL": "postgresql://other"})
        {'shop': 'postgresql://shop', 'hr': 'postgresql://other'}
        """
        ours = {
            m[1].lower().replace("_", "-"): v for name, v in environment.items() if (m := _DATABASE.fullmatch(name))
        }
        theirs = {
            name: value_of(value, f"{self.where}, [database.{name}] url", environment)
            for name, value in self.urls.items()
            if name not in ours
        }
        return theirs | ours

    def _client(
        self, begins: str, table: Mapping[str, Any], where: str, environment: Mapping[str, str]
    ) -> dict[str, str]:
        named = {name.removeprefix(begins): value for name, value in environment.items() if name.startswith(begins)}
        ours = {name.lower().replace("_", "."): value for name, value in named.items() if not _SERVICE.match(name)}
        theirs = {
            name: value_of(value, f"{self.where}, {where} {name}", environment)
            for name, value in table.items()
            if name not in ours
        }
        return {name: ours[name] if name in ours else theirs[name] for name in (*table, *ours)}

    def of_spark(self) -> dict[str, str]:
        """Spark's settings. Raises ConfigError."""
        return {name: value_of(value, f"{self.where}, [spark] {name}") for name, value in self.spark.items()}


def read(path: Path, known: Collection[str]) -> ConfigFile:
    """The settings of a file. `known`: the options' names. Raises ConfigError."""
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read the settings: {why}", where=str(path)) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"the settings are not valid TOML: {error}",
            where=str(path),
            hint='write text in quotes: brokers = "broker-1:9092"; and each name once',
        ) from error
    kafka, spark = content.pop("kafka", {}), content.pop("spark", {})
    if isinstance(spark, str):
        content["spark"], spark = spark, {}
    for name, table, example in (
        ("kafka", kafka, 'security.protocol = "SASL_SSL"'),
        ("spark", spark, 'driver.memory = "4g"'),
    ):
        if not isinstance(table, dict):
            raise ConfigError(
                f"{name!r} is not a table", where=str(path), hint=f"write [{name}], and below it {example}"
            )
    settings = _client_table(kafka, f"{path}, [kafka]", "above the tables")
    clusters, urls = _clusters(content.pop("cluster", {}), path), _urls(content.pop("database", {}), path)
    sparks = {f"spark.{name.removeprefix('spark.')}": value for name, value in flat(spark)}
    if "spark.master" in sparks:
        content["spark"] = sparks.pop("spark.master")
    for name in content:
        if name not in known:
            hint = f"{did_you_mean(name, known)}, and the tables [kafka], [spark], [cluster.NAME] and [database.NAME]"
            raise ConfigError(f"there is no setting {name!r}", where=str(path), hint=hint)
    options = {name: value_of(value, f"{path}, {name}") for name, value in content.items()}
    return ConfigFile(str(path), options, settings, clusters, sparks, urls)


def _client_table(table: Any, where: str, place: str) -> dict[str, Any]:
    """The settings of a client, except its brokers, which are in another `place`. Raises ConfigError."""
    settings = dict(flat(table))
    if "bootstrap.servers" in settings:
        raise ConfigError(
            "the brokers' addresses are not only a client setting",
            where=f"{where} bootstrap.servers",
            hint=f'write brokers = "HOST:PORT,…" {place}',
        )
    return settings


def _clusters(tables: Any, path: Path) -> dict[str, dict[str, Any]]:
    """The tables of other clusters. Raises ConfigError."""
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ConfigError(
            "'cluster' is not a table of tables",
            where=str(path),
            hint='write [cluster.NAME], and below it brokers = "HOST:PORT"; its security goes below [cluster.NAME.kafka]',
        )
    found = {}
    for name, table in tables.items():
        where = f"{path}, [cluster.{name}]"
        if not CLUSTER.fullmatch(name):
            raise ConfigError(f"{name!r} is not a valid cluster name", where=where, hint=NAMES)
        for setting in table:
            if setting not in ("brokers", "kafka"):
                hint = f"{did_you_mean(setting, ['brokers'])}, and the table [cluster.{name}.kafka] for its client's settings"
                raise ConfigError(f"there is no setting {setting!r}", where=where, hint=hint)
        if not isinstance(client := table.get("kafka", {}), dict):
            raise ConfigError("'kafka' is not a table", where=where, hint=f"write [cluster.{name}.kafka]")
        brokers = {"brokers": table["brokers"]} if "brokers" in table else {}
        found[name] = {**_client_table(client, f"{path}, [cluster.{name}.kafka]", f"below [cluster.{name}]"), **brokers}
    return found


def _urls(tables: Any, path: Path) -> dict[str, Any]:
    """The addresses in the tables of databases. Raises ConfigError."""
    example = 'write [database.NAME], and below it url = {env = "NAME_URL"}'
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ConfigError("'database' is not a table of tables", where=str(path), hint=example)
    for name, table in tables.items():
        where = f"{path}, [database.{name}]"
        if not DATABASE.fullmatch(name):
            raise ConfigError(f"{name!r} is not a valid database name", where=where, hint=NAMES)
        if list(table) != ["url"]:
            raise ConfigError("a database has one setting, its url", where=where, hint=example)
    return {name: table["url"] for name, table in tables.items()}


def flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Names with dots, however they are written: `a.b = 1` is a table a with a b in it.

    >>> dict(flat({"sasl": {"username": "app", "password": {"env": "PASSWORD"}}, "ssl.ca.location": "ca.pem"}))
    {'sasl.username': 'app', 'sasl.password': {'env': 'PASSWORD'}, 'ssl.ca.location': 'ca.pem'}
    """
    for name, value in table.items():
        if isinstance(value, dict) and not _elsewhere(value):
            yield from flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def value_of(value: Any, where: str, environment: Mapping[str, str] = os.environ) -> str:
    """A value in the form of the command line. Raises ConfigError.

    >>> value_of(True, ""), value_of(["a:9092", "b:9092"], ""), value_of({"env": "HUSH"}, "", {"HUSH": "x"})
    ('true', 'a:9092,b:9092', 'x')
    """
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case list() if all(isinstance(item, str) for item in value):
            return ",".join(value)
        case {"env": str(name)} if _elsewhere(value):
            if name not in environment:
                raise ConfigError(
                    f"the environment has no {name}",
                    where=where,
                    hint=f"set {name}, for the settings take this value from there",
                )
            return environment[name]
        case {"file": str(name)} if _elsewhere(value):
            try:
                return Path(name).read_text().rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                raise ConfigError(f"cannot read {name}: {why}", where=where) from error
    raise ConfigError(
        "a value is neither text, number, true, false nor a list of texts",
        where=where,
        hint='take it from elsewhere by {env = "NAME"} or {file = "PATH"}',
    )


def check_environment(known: Collection[str], environment: Mapping[str, str] = os.environ) -> None:
    """Raises ConfigError for a name close to an option's. Other programs may have names with the same prefix.

    >>> check_environment(["workers"], {"FALKIRK_WORKERS": "4", "FALKIRK_SERVICE_HOST": "10.0.0.7"})
    >>> check_environment(["workers"], {"FALKIRK_WORKER": "4"})
    Traceback (most recent call last):
    falkirk.errors.ConfigError: there is no setting FALKIRK_WORKER
      where: the environment
      to do: did you mean FALKIRK_WORKERS?
    """
    names = [env_name(name).removeprefix(ENV) for name in known] + [*_OTHERS]
    for name in sorted(environment):
        ours = name.removeprefix(ENV)
        if not name.startswith(ENV) or name.startswith(CLIENT) or ours in names or _DATABASE.fullmatch(name):
            continue
        if name.startswith(_CLUSTERS):
            if not _ABOUT_CLUSTER.fullmatch(name) and not _SERVICE.search(name.removeprefix(_CLUSTERS)):
                raise ConfigError(
                    f"there is no setting {name}",
                    where="the environment",
                    hint=f"of cluster NAME there are {_CLUSTERS}NAME_BROKERS, and {_CLUSTERS}NAME_KAFKA_… for its client",
                )
            continue
        if near := difflib.get_close_matches(ours, names, 1, 0.8):
            raise ConfigError(
                f"there is no setting {name}", where="the environment", hint=f"did you mean {ENV}{near[0]}?"
            )


def env_name(option: str) -> str:
    """The environment variable of an option.

    >>> env_name("state-dir")
    'FALKIRK_STATE_DIR'
    """
    return ENV + option.upper().replace("-", "_")


def _elsewhere(value: Mapping[str, Any]) -> bool:
    return len(value) == 1 and isinstance(value.get("env", value.get("file")), str)
