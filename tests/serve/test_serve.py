"""Requests over HTTP on a real broker: who is answered, and with what; and that kills change nothing of it."""

from __future__ import annotations

import json
import ssl
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPSConnection
from pathlib import Path

import psutil
import pytest
import trustme
from tests.cli.live import committed
from tests.serve.stand import Stand, Told
from tests.serve.trial import Trial

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def stand(kafka: str, topic_prefix: str, tmp_path: Path, request: pytest.FixtureRequest) -> Stand:
    return Stand(kafka, topic_prefix, tmp_path, request.addfinalizer)


def test_requests_are_answered_as_the_flow_says_and_repeated_ones_in_the_same_way(stand: Stand) -> None:
    stand.serve(0)  # it waits for the app
    stand.until(lambda: stand.ask(0, "taxed", {"item": "a", "usd": 1}, "early") is not None)
    early = stand.ask(0, "taxed", {"item": "a", "usd": 1}, "early")
    assert early is not None
    assert (early.status, int(early.headers["retry-after"]) > 0) == (503, True)
    run = stand.run()
    stand.serve(1)
    stand.until(lambda: stand.ready(0) and stand.ready(1))

    lamp = {"item": "lamp", "usd": 40}
    first = [stand.answered(lambda: 0, source, lamp, "k1") for source in ("taxed", "numbered", "taken")]
    assert [(told.status, told.body) for told in first] == [
        (200, [{"tax": 80}]), (200, [{"item": "lamp", "n": 1}]), (204, None)
    ]  # fmt: skip
    for gateway in (0, 1):
        again = [stand.answered(lambda at=gateway: at, source, lamp, "k1") for source in ("taxed", "numbered", "taken")]
        assert [told[:2] for told in again] == [told[:2] for told in first]
        others = [
            stand.ask(gateway, source, {"item": "x", "usd": 1}, "k1") for source in ("taxed", "numbered", "taken")
        ]
        assert [told and told.status for told in others] == [422] * 3
    # A request that the flow leaves out has no rows, and is answered all the same.
    assert stand.answered(lambda: 1, "taxed", {"item": "a", "usd": -1}, "k2").body == []
    # Without a key, each is a request.
    found = [stand.taken(gateway, "numbered", lamp) for gateway in (0, 1)]
    assert [told.body for told in found] == [[{"item": "lamp", "n": 2}], [{"item": "lamp", "n": 3}]]

    wrong = stand.ask(0, "taxed", {"item": "lamp", "usd": "forty"})
    assert wrong is not None
    assert (wrong.status, "'usd'" in wrong.body["error"]) == (400, True)

    # Paused, an app is asked for nothing new. What it has answered, it has answered.
    assert stand.command("pause", f"{stand.prefix}shop").wait() == 0
    stand.until(lambda: not stand.ready(0) and not stand.ready(1))
    unready = stand.ask(0, "ready", b"", method="GET")
    assert unready is not None
    assert (unready.status, unready.body) == (503, {"error": "the app is paused"})
    paused = stand.ask(0, "taxed", lamp, "k3")
    assert paused is not None
    assert (paused.status, paused.body["error"], paused.headers["retry-after"]) == (503, "the app is paused", "5")
    assert stand.answered(lambda: 1, "numbered", lamp, "k1").body == [{"item": "lamp", "n": 1}]
    assert stand.command("resume", f"{stand.prefix}shop").wait() == 0
    assert stand.answered(lambda: 0, "taxed", lamp, "k3").body == [{"tax": 80}]

    seen = Counter(key for key, _, _ in committed(stand.brokers, f"{stand.prefix}seen"))
    assert seen == {b"k1": 1, b"k2": 1, b"k3": 1}
    run.terminate()
    assert run.wait() == 0
    stand.until(lambda: not stand.ready(0))  # it does not run


def test_of_two_gateways_that_get_a_key_at_the_same_moment_both_give_one_answer(stand: Stand) -> None:
    stand.run()
    stand.serve(0)
    stand.serve(1)
    stand.until(lambda: stand.ready(0) and stand.ready(1))
    together = threading.Barrier(2)

    def ask(gateway: int, key: str, body: dict[str, object]) -> Told:
        together.wait()
        return stand.answered(lambda: gateway, "numbered", body, key)

    with ThreadPoolExecutor(2) as pool:
        for n in range(20):
            same = [pool.submit(ask, gateway, f"same-{n}", {"item": "a", "usd": 1}) for gateway in (0, 1)]
            told = [future.result() for future in same]
            assert [answer[:2] for answer in told] == [(200, [{"item": "a", "n": n + 1}])] * 2
            other = [pool.submit(ask, gateway, f"other-{n}", {"item": "b", "usd": gateway}) for gateway in (0, 1)]
            told = sorted((future.result() for future in other), key=lambda answer: answer.status)
            assert [answer.status for answer in told] == [200, 422]
            assert told[0].body == [{"item": "b", "n": n + 1}]
    appended = Counter(key for key, _, _ in committed(stand.brokers, f"{stand.prefix}numbered"))
    assert len(appended) == 40
    assert max(appended.values()) == 2, "the gateways never appended the same key, so this has shown nothing"


def test_a_run_starts_a_gateway_beside_its_workers_with_tls_and_a_token(stand: Stand) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(stand.folder / "cert.pem"))
    (stand.folder / "token").write_text("0123456789abcdef\n")
    run = stand.run(
        "--listen", str(stand.ports[0]), "--listen-cert", "cert.pem", "--listen-token-file", "token"
    )  # fmt: skip
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    def ask(token: str) -> tuple[int, bytes]:
        connection = HTTPSConnection("127.0.0.1", stand.ports[0], timeout=60, context=trusting)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}", "Idempotency-Key": "k"}
        try:
            connection.request("POST", "/taxed", json.dumps({"item": "a", "usd": 2}), headers)
            response = connection.getresponse()
            return response.status, response.read()
        except ConnectionError:
            return 0, b""
        finally:
            connection.close()

    stand.until(lambda: ask("0123456789abcdef")[0] == 200)
    assert ask("0123456789abcdef") == (200, b'[{"tax":4}]')
    assert ask("0123456789abcdeg")[0] == 401
    assert stand.ask(0, "taxed", {"item": "a", "usd": 2}) is None  # it speaks TLS only
    [gateway] = [
        child for child in psutil.Process(run.pid).children() if "gateway_process" in " ".join(child.cmdline())
    ]
    gateway.kill()
    stand.until(lambda: ask("0123456789abcdef") == (200, b'[{"tax":4}]'))
    run.terminate()
    assert run.wait() == 0
    assert ask("0123456789abcdef")[0] == 0


def test_requests_are_computed_once_and_answered_alike_though_all_are_killed(stand: Stand) -> None:
    trial = Trial(stand, clients=8, each=25, between=20)
    trial.run()
    trial.check()
    assert trial.kills >= 2


def test_a_gateway_that_outlives_its_app_serves_the_next_one_of_that_name(stand: Stand) -> None:
    shop, lamp = f"{stand.prefix}shop", {"item": "lamp", "usd": 40}
    run = stand.run()
    stand.serve(0, "--state-dir", "of-the-gateway")
    stand.until(lambda: stand.ready(0))
    assert stand.answered(lambda: 0, "numbered", lamp, "k1").body == [{"item": "lamp", "n": 1}]
    for _ in range(5):  # the control topic grows: that of the next app is shorter
        assert stand.command("pause", shop).wait() == 0
        assert stand.command("resume", shop).wait() == 0
    run.terminate()
    assert run.wait() == 0
    stand.until(lambda: stand.command("delete", shop, "--sinks", "--yes").wait() == 0)
    stand.until(lambda: (told := stand.ask(0, "numbered", lamp, "k1")) and told.status == 503)

    stand.run()
    stand.until(lambda: stand.ready(0))
    # It reads the requests from their start, so that it has answered the first one again.
    assert stand.answered(lambda: 0, "numbered", lamp, "k1").body == [{"item": "lamp", "n": 1}]
    assert stand.answered(lambda: 0, "numbered", lamp, "k2").body == [{"item": "lamp", "n": 2}]
    assert stand.command("pause", shop).wait() == 0
    stand.until(lambda: not stand.ready(0))
