"""Who is not let in, or may not do one thing, is told what, where and what to do; and goes on when that is fixed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.security.guarded import FLOW, PASSWORD, Guarded

from falkirk.checkpoint.ids import domain_owner
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import ClusterError, FalkirkError
from falkirk.runtime.host.identity import identity

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RIGHTS = "falkirk topics APP:FLOW --acls --user NAME"


def refusal(app: Guarded) -> FalkirkError:
    """What is wrong with the settings."""
    with pytest.raises(FalkirkError) as caught:
        Topics(app.settings.cluster()).check_reachable(timeout=5)
    assert PASSWORD not in str(caught.value)
    assert "guess" not in str(caught.value)
    return caught.value


def test_a_wrong_password(app: Guarded) -> None:
    app.settings = replace(app.settings, client={**app.settings.client, "sasl.password": "guess"})
    error = refusal(app)
    assert error.exit_code == 3
    assert "the broker refused the credentials" in error.what
    assert app.broker.front in error.where
    assert "sasl.password" in error.hint
    shown = app.falkirk("status", app.name, password="guess")
    assert shown.code == 3
    assert str(error).partition("(after")[0] in shown.text  # how long it took is another matter
    assert "guess" not in shown.text


def test_certificates_that_are_out_of_date_or_of_an_authority_that_is_not_known(app: Guarded) -> None:
    at_the_front = app.settings
    app.settings = replace(at_the_front, brokers=app.broker.expired)
    error = refusal(app)
    assert error.exit_code == 3
    assert f"not to be trusted: {app.broker.expired}: certificate has expired" in error.what
    app.settings = replace(at_the_front, client={**at_the_front.client, "ssl.ca.location": str(app.broker.other)})
    error = refusal(app)
    assert error.exit_code == 3
    assert "not to be trusted" in error.what
    assert "unable to get local issuer certificate" in error.what
    assert "ssl.ca.location" in error.hint


def test_a_client_that_knows_nothing_of_tls_or_of_passwords(app: Guarded) -> None:
    client = app.settings.client
    for wrong in ({}, {"security.protocol": "SSL", "ssl.ca.location": client["ssl.ca.location"]}):
        app.settings = replace(app.settings, client=wrong)
        error = refusal(app)
        assert error.exit_code == 3
        assert app.broker.front in str(error)


def test_each_right_is_missed_where_it_is_needed_and_no_record_with_it(app: Guarded) -> None:
    app.topic()
    app.bids(50)
    app.allow()
    app.go_on(FLOW)
    own = f"falkirk.{app.name}."
    owner = domain_owner(identity(Path(app.settings.state_dir), app.name, 0).member(app.name), "stats")
    for operation, place in (
        ("READ", {"topic": f"{app.prefix}bids"}),
        ("WRITE", {"topic": f"{app.prefix}stats"}),
        ("READ", {"topic": f"{own}steps"}),
        ("WRITE", {"topic": f"{own}changelog.stats"}),
        ("WRITE", {"topic": f"{own}edge.bidders"}),
        ("READ", {"topic": f"{own}edge.bidders"}),
        ("READ", {"group": app.name}),
        ("WRITE", {"id_": owner}),
        ("DESCRIBE", {"group": "falkirk-reader"}),
        ("DESCRIBE", {"group": "falkirk-source"}),
    ):
        app.bids(50)
        with app.broker.denied(app.user, operation, **place), pytest.raises(ClusterError) as caught:
            app.go_on(FLOW)
        (name,) = place.values()
        assert name in str(caught.value), (operation, name)
        assert "not authorised" in caught.value.what
        assert RIGHTS in caught.value.hint
    app.go_on(FLOW)
    app.assert_exact()
    app.assert_exact("bidders", by="bidder")
