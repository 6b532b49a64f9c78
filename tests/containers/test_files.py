"""What stands in docker/, held to what the command line and the images have. No engine and no cluster is asked."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tests.containers.compose import COMPOSE, ROOT, services

from falkirk.cli.main import COMMANDS, falkirk
from falkirk.runtime.host.listening import parse_address
from falkirk.stream.flow.load import load_flow

DOCKER = COMPOSE.parent
KUBERNETES = DOCKER / "kubernetes"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
STATE = re.findall(r"^VOLUME (\S+)$", DOCKERFILE, re.MULTILINE)[0]
USER = int(re.findall(r"^USER (\d+)$", DOCKERFILE, re.MULTILINE)[0])
DEFAULTS = services({})
WORKERS = [service for service in DEFAULTS.values() if service.name.startswith("worker")]


def parsed(arguments: list[str], settings: Path | None = None) -> dict[str, Any]:
    """What the command line makes of these. Raises where it refuses them."""
    name, *rest = arguments
    command = falkirk.get_command(click.Context(falkirk), name)
    assert command is not None, f"there is no command {name}"
    return command.make_context(name, [*rest, *(["--config", str(settings)] if settings else [])]).params


def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    """By kind and name."""
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    assert sorted([*listed, "kustomization.yaml"]) == sorted(file.name for file in KUBERNETES.iterdir())
    found = [document for file in listed for document in yaml.safe_load_all((KUBERNETES / file).read_text())]
    return {(document["kind"], document["metadata"]["name"]): document for document in found}


ALL = manifests()
PODS = {name: each["spec"]["template"] for (kind, name), each in ALL.items() if kind in ("StatefulSet", "Deployment")}


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """The settings file of the pods."""
    path = tmp_path / "falkirk.toml"
    path.write_text(ALL["ConfigMap", "app-settings"]["data"]["falkirk.toml"])
    return path


# -- the image ---------------------------------------------------------------------------------------------------------


def test_the_image_keeps_state_where_its_volume_is() -> None:
    assert f"FALKIRK_STATE_DIR={STATE}" in DOCKERFILE
    assert re.search(rf"install -d -o falkirk -g falkirk .*{STATE}", DOCKERFILE)
    assert f"--uid {USER}" in DOCKERFILE


def test_the_context_of_the_image_holds_what_is_copied_from_it() -> None:
    wanted = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    copied = [line.split()[1:-1] for line in DOCKERFILE.splitlines() if re.match("COPY (?!--from)", line)]
    assert {name for names in copied for name in names} == wanted
    assert all((ROOT / name).exists() for name in wanted)


# -- compose -----------------------------------------------------------------------------------------------------------


def test_there_are_two_workers_with_a_volume_of_their_own_each() -> None:
    assert len(WORKERS) == 2
    assert len({service.volumes[STATE] for service in WORKERS}) == 2


@pytest.mark.parametrize("service", WORKERS, ids=lambda service: service.name)
def test_a_worker_s_command_and_settings_are_what_the_command_line_takes(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in service.environment.items():
        monkeypatch.setenv(name, value)
    params = parsed(list(service.command))
    assert params["brokers"] == "kafka:9092"
    assert params["checkpoints"].removeprefix("file://") in service.volumes
    known = {name for parameter in _parameters("worker") for name in _variables(parameter)}
    assert service.environment.keys() <= known


def test_workers_and_this_host_find_kafka_where_it_says_that_it_is() -> None:
    kafka = DEFAULTS["kafka"]
    said = kafka.environment["KAFKA_ADVERTISED_LISTENERS"].split(",")
    inside, outside = (address.split("://")[1] for address in said)
    assert {service.environment["FALKIRK_BROKERS"] for service in WORKERS} == {inside}
    ((port, (address, host_port)),) = kafka.ports.items()
    assert outside == f"{address}:{host_port}"
    assert f"OUTSIDE://:{port}" in kafka.environment["KAFKA_LISTENERS"]


def test_controller_and_broker_are_of_one_cluster() -> None:
    controller, kafka = DEFAULTS["controller"].environment, DEFAULTS["kafka"].environment
    for name in ("CLUSTER_ID", "KAFKA_CONTROLLER_QUORUM_VOTERS", "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"):
        assert controller[name] == kafka[name]
    assert controller["KAFKA_CONTROLLER_QUORUM_VOTERS"] == f"{controller['KAFKA_NODE_ID']}@controller:9093"


def test_the_flow_that_is_run_by_default_is_there_and_reads_the_topic_that_is_made() -> None:
    folder = Path(WORKERS[0].volumes["/app"][0])
    target = WORKERS[0].command[1]
    plan = load_flow(str(folder / target)).plan()
    made = DEFAULTS["topics"].command
    assert made[made.index("--topic") + 1] in {source.topic for stage in plan.stages for source in stage.sources}


def test_all_services_and_volumes_that_are_named_are_there() -> None:
    content = yaml.safe_load(COMPOSE.read_text())
    for service in DEFAULTS.values():
        assert set(service.depends_on) <= content["services"].keys()
        named = {source for source, _ in service.volumes.values() if not source.startswith("/")}
        assert named <= content["volumes"].keys()


# -- kubernetes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PODS)
def test_a_pod_s_command_and_settings_are_what_the_command_line_takes(name: str, settings: Path) -> None:
    (container,) = PODS[name]["spec"]["containers"]
    params = parsed(container["args"], settings)
    given = tomllib.loads(settings.read_text())
    assert params["brokers"] == given["brokers"]
    assert params["checkpoints"] == given["checkpoints"]
    assert (ROOT / "examples" / params["target"].partition(":")[0]).exists()


def test_all_pods_run_the_same_flow() -> None:
    assert len({pod["spec"]["containers"][0]["args"][1] for pod in PODS.values()}) == 1


@pytest.mark.parametrize("name", PODS)
def test_a_pod_finds_its_settings_and_its_state(name: str) -> None:
    spec = PODS[name]["spec"]
    (container,) = spec["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    claims = ALL.get(("StatefulSet", name), {}).get("spec", {}).get("volumeClaimTemplates", [])
    assert set(mounts.values()) == volumes.keys() | {claim["metadata"]["name"] for claim in claims}
    (config,) = (Path(each["value"]) for each in container["env"] if each["name"] == "FALKIRK_CONFIG")
    settings = volumes[mounts[str(config.parent)]]["configMap"]["name"]
    assert config.name in ALL["ConfigMap", settings]["data"]
    assert STATE in mounts
    assert all(("Secret", each["secretRef"]["name"]) in ALL for each in container["envFrom"])
    assert not spec["enableServiceLinks"]


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_the_image_s_user_who_owns_the_state(name: str) -> None:
    context = PODS[name]["spec"]["securityContext"]
    assert context["runAsNonRoot"]
    assert {context["runAsUser"], context["runAsGroup"], context["fsGroup"]} == {USER}


def test_a_worker_s_identity_outlives_its_pod() -> None:
    workers = ALL["StatefulSet", "app-workers"]["spec"]
    (claim,) = workers["volumeClaimTemplates"]
    (container,) = workers["template"]["spec"]["containers"]
    assert {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}[
        claim["metadata"]["name"]
    ] == STATE
    assert workers["template"]["spec"]["terminationGracePeriodSeconds"] >= WORKERS[0].grace_s


def test_probes_ask_where_the_worker_answers(settings: Path) -> None:
    (container,) = ALL["StatefulSet", "app-workers"]["spec"]["template"]["spec"]["containers"]
    host, port = parse_address(tomllib.loads(settings.read_text())["http"], "http")
    ((name, number),) = ((each["name"], each["containerPort"]) for each in container["ports"])
    assert (host, port) == ("0.0.0.0", number)
    probes = {kind: probe["httpGet"] for kind, probe in container.items() if kind.endswith("Probe")}
    assert {probe["port"] for probe in probes.values()} == {name}
    assert {kind: probe["path"] for kind, probe in probes.items()} == {
        "startupProbe": "/live", "livenessProbe": "/live", "readinessProbe": "/ready",
    }  # fmt: skip


def test_what_selects_pods_selects_those_that_are_there() -> None:
    for (kind, name), each in ALL.items():
        selector = each.get("spec", {}).get("selector")
        if selector is None:
            continue
        labels = selector if kind == "Service" else selector["matchLabels"]
        assert labels.items() <= PODS[name]["metadata"]["labels"].items(), f"{kind} {name}"
    workers = ALL["StatefulSet", "app-workers"]["spec"]
    assert ("Service", workers["serviceName"]) in ALL


def test_images_are_those_that_are_to_be_replaced() -> None:
    replaced = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["images"]
    assert {each["name"] for each in replaced} == {pod["spec"]["containers"][0]["image"] for pod in PODS.values()}


# -- what the document says --------------------------------------------------------------------------------------------


def test_commands_in_the_document_are_there() -> None:
    text = (ROOT / "docs" / "how-to" / "containers.md").read_text()
    assert set(re.findall(r"`falkirk (\w+)", text)) <= COMMANDS.keys()
    for path in re.findall(r"(?:-f|-k) (\S+)", text):
        assert (ROOT / path).exists(), path


def _parameters(name: str) -> list[click.Parameter]:
    command = falkirk.get_command(click.Context(falkirk), name)
    assert command is not None
    return command.params


def _variables(parameter: click.Parameter) -> list[str]:
    given = parameter.envvar
    return [given] if isinstance(given, str) else list(given or ())
