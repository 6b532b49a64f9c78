"""Apps by their names, for commands without a flow."""

from __future__ import annotations

from contextlib import closing

from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import ControlTopic
from falkirk.errors import ConfigError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.layout import AppRecord, LayoutRecord, check_not_ending, read_app_record
from falkirk.stream.definition.names import control_topic, is_name


def known_app(app: str, settings: Settings, topics: Topics) -> AppRecord:
    """What is recorded of an app. Raises ConfigError if the cluster has no such app, ClusterError if no broker answers."""
    check_app_name(app)
    topics.check_reachable(timeout=5.0)
    if (known := recorded(app, settings, topics)) is not None:
        return known
    raise no_such_app(app, settings, topics)


def check_app_name(app: str) -> None:
    """Raises ConfigError unless it can be the name of an app: a folder is named after it, which a deletion removes."""
    if not is_name(app):
        raise ConfigError(
            f"{app!r} is not a valid name of an app",
            hint="is a variable empty on the command line? The name is what the flow is called: fk.Flow(NAME)",
        )


def recorded(app: str, settings: Settings, topics: Topics) -> AppRecord | None:
    """The same; None if the cluster has no such app."""
    control = control_topic(settings.prefix, app)
    if not topics.describe([control]):
        return None
    with closing(ControlTopic(settings.cluster(), control)) as record:
        return read_app_record(record)


def layout_of(app: str, settings: Settings, topics: Topics) -> LayoutRecord:
    """The layout of an app that has run. Raises ConfigError if there is none, StateError if it is half deleted."""
    known = known_app(app, settings, topics)
    check_not_ending(app, known)
    if known.layout is None:
        raise not_begun(app, known)
    return known.layout


def not_begun(app: str, known: AppRecord) -> ConfigError:
    """It has no layout that counts."""
    if known.begins is None:
        return ConfigError(f"app {app!r} has not run yet", hint="its topics exist; falkirk run runs it")
    return ConfigError(f"app {app!r} was reset, and has not run since", hint="falkirk run runs it")


def no_such_app(app: str, settings: Settings, topics: Topics) -> ConfigError:
    """With the apps that exist."""
    prefix, suffix = control_topic(settings.prefix, "\0").split("\0")
    known = sorted(
        t.removeprefix(prefix).removesuffix(suffix)
        for t in topics.names()
        if t.startswith(prefix) and t.endswith(suffix)
    )
    return ConfigError(
        f"there is no app {app!r} on this cluster",
        where=f"{settings.brokers}, topics {settings.prefix}.…",
        hint=f"its apps are: {', '.join(known)}"
        if known
        else "no app has run here under this prefix; try another --prefix",
    )
