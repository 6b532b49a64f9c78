"""An engine and the images, or the reason why there are none."""

from __future__ import annotations

import os
from typing import NoReturn

import docker
import docker.errors
import pytest
import requests
from testcontainers.core.image import DockerImage
from tests.containers.compose import COMPOSE, ROOT, services

KAFKA, WORKER = "FALKIRK_TEST_KAFKA_IMAGE", "FALKIRK_TEST_WORKER_IMAGE"
"""Images that were asked for by these must be there: tests fail without them, and are not skipped."""


@pytest.fixture(scope="session")
def engine() -> docker.DockerClient:
    """A container engine that answers."""
    try:
        client = docker.from_env()
        client.ping()
    except docker.errors.DockerException as error:
        missing(f"no container engine answers: {error}", WORKER)
    return client


@pytest.fixture(scope="session")
def kafka_image(engine: docker.DockerClient) -> str:
    """Kafka's image: Apache's, if no other is asked for."""
    name = os.environ.get(KAFKA) or services({})["kafka"].image
    try:
        engine.images.get(name)
    except docker.errors.ImageNotFound:
        try:
            engine.images.pull(name)
        except (docker.errors.APIError, requests.RequestException) as error:
            missing(f"image {name} is not to be had: {error}", KAFKA)
    return name


@pytest.fixture(scope="session")
def worker_image(engine: docker.DockerClient) -> str:
    """The image of docker/Dockerfile, made of this tree, if no other is asked for."""
    if name := os.environ.get(WORKER):
        return name
    dockerfile = str((COMPOSE.parent / "Dockerfile").relative_to(ROOT))
    image = DockerImage(ROOT, tag="falkirk-test", dockerfile_path=dockerfile, clean_up=False)
    try:
        return str(image.build())
    except docker.errors.APIError as error:
        missing(f"no image can be built: {error}", WORKER)


def missing(what: str, asked: str) -> NoReturn:
    """Skip; but where somebody has said that it is there, fail."""
    if os.environ.get(asked):
        pytest.fail(f"{what} ({asked} is set)")
    pytest.skip(f"{what}; .ci/run installs an engine, and builds images where none are to be had")
