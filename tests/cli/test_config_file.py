"""Options that the environment and a settings file give, in their order; and that no secret is shown."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer

from falkirk.cli.options import dev_options, of_own_kafka, run_options, settings_from, until_option, workers_option
from falkirk.cli.setting import DURATION
from falkirk.connectors.kafka.client.clients import client
from falkirk.errors import ConfigError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.processes import kept_child, supervisor
from falkirk.runtime.processes.driver_child import DriverChild
from falkirk.runtime.processes.supervisor import Supervisor

SECURE = """
brokers = ["broker-1:9093", "broker-2:9093"]
workers = 4
memory = "1GiB"
[kafka]
security.protocol = "SASL_SSL"
sasl.username = "app"
sasl.password = {env = "KAFKA_PASSWORD"}
enable.ssl.certificate.verification = false
[spark]
master = "spark://master:7077"
driver.memory = "4g"
hadoop.fs.s3a.secret.key = {file = "key"}
"""

SALES = """
brokers = "broker-1:9092"
[kafka]
sasl.password = "the app's own"
[cluster.sales]
brokers = ["sales-1:9093", "sales-2:9093"]
[cluster.sales.kafka]
security.protocol = "SASL_SSL"
sasl.password = {env = "KAFKA_PASSWORD"}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with nothing in it, and an environment in which nothing is set."""
    for name in os.environ:
        if name.startswith("FALKIRK_") and name != "FALKIRK_CACHE":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text("spark's secret\n")
    return tmp_path


def settings(*arguments: str, environment: Mapping[str, str] | None = None, dev: bool = False) -> Settings:
    """The settings that a command line comes to. Raises ConfigError."""
    found = []

    @click.command()
    @(dev_options if dev else run_options)
    @workers_option
    @until_option
    def command(target: str, workers: int, until: str | None, **options: Any) -> None:
        given = of_own_kafka(options, "127.0.0.1:1") if dev else options
        found.append(settings_from(workers=workers, **given))

    done = CliRunner().invoke(command, ["app:flow", *arguments], env={"KAFKA_PASSWORD": "hush", **(environment or {})})
    if isinstance(done.exception, ConfigError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return found[0]


def test_a_file_in_the_working_folder_gives_what_no_option_does(folder: Path) -> None:
    (folder / "falkirk.toml").write_text(SECURE)
    found = settings()
    assert (found.brokers, found.workers, found.cache_bytes) == ("broker-1:9093,broker-2:9093", 4, 1 << 30)
    assert found.client == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "app",
        "sasl.password": "hush",
        "enable.ssl.certificate.verification": "false",
    }
    assert found.spark == "spark://master:7077"
    assert found.spark_settings == {
        "spark.driver.memory": "4g",
        "spark.hadoop.fs.s3a.secret.key": "spark's secret",
    }


def test_dev_keeps_steps_for_ten_minutes_and_other_runs_only_if_asked(folder: Path) -> None:
    assert settings(dev=True).keep_steps_ms == 600_000
    assert settings("--keep-steps", "1h", dev=True).keep_steps_ms == 3_600_000
    assert settings("--brokers", "broker-1:9092").keep_steps_ms == 0


def test_an_option_comes_before_the_environment_and_that_before_a_file(folder: Path) -> None:
    (folder / "falkirk.toml").write_text(SECURE)
    environment = {
        "FALKIRK_WORKERS": "3",
        "FALKIRK_KAFKA_SASL_USERNAME": "shop",
        "FALKIRK_KAFKA_SSL_CA_LOCATION": "ca.pem",
        "FALKIRK_KAFKA_PORT_9092_TCP": "tcp://10.0.0.7:9092",
        "FALKIRK_SPARK_SET": "spark.driver.memory=3g",
    }
    found = settings(environment=environment)
    assert (found.workers, found.client["sasl.username"], found.client["ssl.ca.location"]) == (3, "shop", "ca.pem")
    assert "port.9092.tcp" not in found.client
    assert found.spark_settings["spark.driver.memory"] == "3g"
    given = ["--workers", "2", "--set", "sasl.username=me", "--spark-set", "spark.driver.memory=2g"]
    found = settings(*given, environment=environment)
    assert (found.workers, found.client["sasl.username"], found.client["sasl.password"]) == (2, "me", "hush")
    assert found.spark_settings["spark.driver.memory"] == "2g"


def test_a_file_is_named_by_option_or_environment(folder: Path) -> None:
    (folder / "falkirk.toml").write_text("worker = 1  # which is not read")
    (folder / "other.toml").write_text('brokers = "a:1"')
    (folder / "third.toml").write_text('brokers = "b:1"')
    assert settings(environment={"FALKIRK_CONFIG": "other.toml"}).brokers == "a:1"
    assert settings("--config", "third.toml", environment={"FALKIRK_CONFIG": "other.toml"}).brokers == "b:1"


def test_other_clusters_have_addresses_and_settings_of_their_own(folder: Path) -> None:
    (folder / "falkirk.toml").write_text(SALES)
    environment = {
        "FALKIRK_CLUSTER_SALES_EU_BROKERS": "eu:9092",
        "FALKIRK_CLUSTER_SALES_EU_KAFKA_SASL_USERNAME": "eu",
        "FALKIRK_CLUSTER_SALES_KAFKA_SASL_USERNAME": "app",
        "FALKIRK_CLUSTER_HR_BROKERS": "of the environment",
    }
    found = settings("--cluster", "hr=hr-1:9092,hr-2:9092", environment=environment).cluster()
    assert {name: (cluster.brokers, dict(cluster.client)) for name, cluster in found.others.items()} == {
        "hr": ("hr-1:9092,hr-2:9092", {}),
        "sales": (
            "sales-1:9093,sales-2:9093",
            {"security.protocol": "SASL_SSL", "sasl.password": "hush", "sasl.username": "app"},
        ),
        "sales-eu": ("eu:9092", {"sasl.username": "eu"}),
    }
    assert found.client == {"sasl.password": "the app's own"}
    assert found.of("sales").name == "sales"
    assert "hush" not in repr(found)
    moved = settings(environment={"FALKIRK_CLUSTER_SALES_BROKERS": "moved:9092"}).cluster().of("sales")
    assert (moved.brokers, moved.client["sasl.password"]) == ("moved:9092", "hush")


def test_a_worker_is_given_what_its_supervisor_knows_of_other_clusters(folder: Path) -> None:
    (folder / "falkirk.toml").write_text(SALES)
    found = settings()
    assert msgspec.json.decode(msgspec.json.encode(found), type=Settings) == found


def test_a_cluster_that_is_not_given_is_answered_with_the_nearest_and_how_to_give_it(folder: Path) -> None:
    (folder / "falkirk.toml").write_text(SALES)
    with pytest.raises(ConfigError, match="reads from a cluster 'sale', and nothing says where that is") as caught:
        settings().cluster().of("sale")
    assert caught.value.hint == (
        "did you mean 'sales'? give its addresses: --cluster sale=HOST:PORT,… (or FALKIRK_CLUSTER_SALE_BROKERS, or "
        'brokers = "HOST:PORT" below [cluster.sale] in falkirk.toml)'
    )


def test_a_kafka_of_this_machine_has_no_settings_of_another(folder: Path) -> None:
    (folder / "falkirk.toml").write_text(SECURE)
    environment = {"FALKIRK_KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}
    environment["FALKIRK_CLUSTER_HR_BROKERS"] = "hr:9092"
    found = settings("--set", "client.id=me", "--cluster", "sales=b:1", environment=environment, dev=True)
    assert (found.brokers, found.client, found.workers) == ("127.0.0.1:1", {"client.id": "me"}, 1)
    assert {name: cluster.brokers for name, cluster in found.clusters.items()} == {"sales": "b:1"}
    named = settings("--config", "falkirk.toml", environment=environment, dev=True)
    assert (named.brokers, named.client, named.workers) == ("127.0.0.1:1", {}, 4)


def test_each_setting_is_listed_once(folder: Path) -> None:
    settings(dev=True)  # another command, with the same settings
    (folder / "falkirk.toml").write_text("worker = 2")
    with pytest.raises(ConfigError) as caught:
        settings()
    assert caught.value.hint.count("keep-steps") == caught.value.hint.count("on-divergence") == 1


def test_a_duration_on_a_command_line_is_refused_without_words_about_python() -> None:
    with pytest.raises(click.BadParameter) as refused:
        DURATION.convert("10min", None, None)
    written = 'write numbers and us, ms, s, m, h or d: "100ms", "1h30m", "7d"'
    assert refused.value.message == f"'10min' is not a duration; {written}"


@pytest.mark.parametrize(
    ("text", "what", "where", "hint"),
    [
        ("worker = 2", "there is no setting 'worker'", "falkirk.toml", "did you mean 'workers'"),
        ("keep-step = 2", "there is no setting 'keep-step'", "falkirk.toml", "did you mean 'keep-steps'?"),
        ("workers = 0", "0 is not in the range", "the settings file, workers", "--help"),
        ("workers = {a = 1}", "neither text, number", "falkirk.toml, workers", "{env ="),
        ("brokers = a:1", "the settings are not valid TOML", "falkirk.toml", "in quotes"),
        ("kafka = 1", "'kafka' is not a table", "falkirk.toml", "[kafka]"),
        ('[kafka]\nbootstrap.servers = "a:1"', "brokers' addresses", "[kafka] bootstrap.servers", "brokers ="),
        (
            'brokers = "a:1"\n[kafka]\nsasl.password = {env = "NOWHERE"}',
            "the environment has no NOWHERE",
            "falkirk.toml, [kafka] sasl.password",
            "set NOWHERE",
        ),
        ("cluster = 1", "'cluster' is not a table", "falkirk.toml", "[cluster.NAME]"),
        ('[cluster]\nsales = "a:1"', "'cluster' is not a table of tables", "falkirk.toml", "[cluster.NAME]"),
        ("[cluster.Sales]", "'Sales' is not a valid cluster name", "[cluster.Sales]", "small letters"),
        ('[cluster.sales]\nbroker = "a:1"', "no setting 'broker'", "[cluster.sales]", "did you mean 'brokers'"),
        ('[cluster.sales]\nkafka = "a:1"', "'kafka' is not a table", "[cluster.sales]", "[cluster.sales.kafka]"),
        (
            '[cluster.sales.kafka]\nbootstrap.servers = "a:1"',
            "brokers' addresses",
            "[cluster.sales.kafka] bootstrap.servers",
            "below [cluster.sales]",
        ),
        (
            'brokers = "a:1"\n[cluster.sales.kafka]\nsasl.username = "app"',
            "cluster 'sales' has settings, and no addresses",
            "[cluster.sales]",
            "brokers =",
        ),
        (
            'brokers = "a:1"\n[cluster.sales]\nbrokers = "b:1"\nkafka.sasl.password = {env = "NOWHERE"}',
            "the environment has no NOWHERE",
            "falkirk.toml, [cluster.sales.kafka] sasl.password",
            "set NOWHERE",
        ),
        ('brokers = "a:1"\n[kafka]\nssl.key.pem = {file = "no"}', "cannot read no: No such", "[kafka] ssl.key.pem", ""),
    ],
)
def test_a_mistake_in_a_file_is_said_with_its_place(folder: Path, text: str, what: str, where: str, hint: str) -> None:
    (folder / "falkirk.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        settings()
    assert what in caught.value.what
    assert where in caught.value.where
    assert hint in caught.value.hint


def test_a_mistake_in_the_environment_is_said_with_its_place() -> None:
    with pytest.raises(ConfigError, match="FALKIRK_STATEDIR") as caught:
        settings(environment={"FALKIRK_STATEDIR": "here"})
    assert caught.value.hint == "did you mean FALKIRK_STATE_DIR?"
    with pytest.raises(ConfigError, match="'many' is not a valid integer") as caught:
        settings(environment={"FALKIRK_WORKERS": "many"})
    assert caught.value.where == "environment variable FALKIRK_WORKERS"
    with pytest.raises(ConfigError, match=r"no setting FALKIRK_CLUSTER_SALES_BROKER\n") as caught:
        settings("--brokers", "a:1", environment={"FALKIRK_CLUSTER_SALES_BROKER": "b:1"})
    assert "FALKIRK_CLUSTER_NAME_BROKERS" in caught.value.hint
    settings("--brokers", "a:1", environment={"FALKIRK_CLUSTER_SALES_PORT_9092_TCP": "tcp://10.0.0.7"})
    with pytest.raises(ConfigError, match="'Sales' is not a valid cluster name"):
        settings("--brokers", "a:1", "--cluster", "Sales=b:1")


def test_a_setting_that_the_client_does_not_know_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r'No such configuration property: "sasl\.pasword"') as caught:
        client(Consumer, {"sasl.pasword": "hush", "group.id": "x"})
    assert caught.value.hint.startswith("did you mean sasl.password?")


def test_what_is_said_of_settings_holds_no_secret() -> None:
    secrets = {"sasl.password": "hush", "ssl.key.pem": "hush", "sasl.mechanism": "hush"}
    assert "hush" not in repr(Settings("a:1", "", client=secrets, spark_settings=secrets))
    assert "hush" not in repr(Settings("a:1", "", client=secrets).cluster())
    with pytest.raises(ConfigError) as caught:
        client(Consumer, {**secrets, "security.protocol": "hush", "group.id": "x"})
    assert "hush" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        settings("--brokers", "a:1", "--set", "sasl.password hush")
    assert "hush" not in str(caught.value)


def test_processes_are_given_their_settings_where_no_other_process_sees_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Command lines are for all to see."""
    begun: list[list[str]] = []
    given: list[bytes] = []

    class Process:
        pid, stdout, stderr = 1, (), ()

        def __init__(self, arguments: list[str], **_: Any) -> None:
            begun.append(arguments)
            self.stdin = self

        def write(self, text: bytes) -> None:
            given.append(text)

        def flush(self) -> None: ...
        def terminate(self) -> None: ...
        def kill(self) -> None: ...
        def wait(self, timeout: float | None = None) -> int:
            return 0

    for module in (supervisor, kept_child):
        monkeypatch.setattr(module.subprocess, "Popen", Process)
    wanted = Settings("a:1", "here", client={"sasl.password": "hush"})
    with Supervisor("app:flow", wanted):
        pass
    DriverChild("app:flow", wanted, lambda _: None).close()
    assert len(begun) == 2
    assert not any("hush" in argument for arguments in begun for argument in arguments)
    assert [msgspec.json.decode(text, type=Settings) for text in given] == [wanted, wanted]


def test_the_address_of_a_database_comes_from_a_file_or_the_environment_and_is_not_shown(folder: Path) -> None:
    (folder / "falkirk.toml").write_text(
        'brokers = "b:1"\n[database.shop]\nurl = {file = "key"}\n[database.hr]\nurl = {env = "HR"}\n'
    )
    found = settings(environment={"HR": "unused", "FALKIRK_DATABASE_HR_URL": "postgresql://hr:hush@h"})
    assert found.databases == {"shop": "spark's secret", "hr": "postgresql://hr:hush@h"}
    assert "hush" not in repr(found)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Settings) == found, "as workers get it"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("database = 1", "'database' is not a table of tables"),
        ("[database]\nshop = 'postgresql://app:hush@h'", "'database' is not a table of tables"),
        ("[database.SHOP]\nurl = 'postgresql://app:hush@h'", "'SHOP' is not a valid database name"),
        ("[database.shop]\nurl = 'postgresql://app:hush@h'\nuser = 'x'", "one setting, its url"),
    ],
)
def test_a_table_of_a_database_that_is_wrong_says_so_without_its_address(folder: Path, text: str, words: str) -> None:
    (folder / "falkirk.toml").write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        settings("--brokers", "b:1")
    assert "hush" not in str(caught.value)
