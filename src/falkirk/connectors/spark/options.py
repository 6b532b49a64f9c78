"""A reader's options. Spark's options are strings, even if the user gave others."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from falkirk.blame import did_you_mean
from falkirk.checkpoint.ids import Offset
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.spark.columns import RECORD
from falkirk.durations import duration, millis_since_1970
from falkirk.errors import ConfigError
from falkirk.stream.definition.names import PREFIX, epochs_topic, steps_topic
from falkirk.stream.formats.base import Format
from falkirk.stream.formats.scalar import Raw
from falkirk.stream.formats.spoken import format_of

KNOWN = (
    "app", "brokers", "ending", "epoch", "malformed", "metadata", "patience", "prefix", "ranges", "slice", "stage",
    "starting", "step", "topic", "topic_id", "value",
)  # fmt: skip
CLIENT = "kafka."
"""The prefix of a librdkafka setting."""

Bound = str | int
""""earliest", "latest", or milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one read, checked.

    >>> given = {"brokers": "127.0.0.1:9092", "topic": "bids", "ranges": '{"0": [5, 9]}', "value": "Text('line')"}
    >>> Options.parse(given).ranges
    {0: (5, 9)}
    >>> Options.parse({**given, "rangse": ""})
    Traceback (most recent call last):
    falkirk.errors.ConfigError: there is no option 'rangse'
      to do: did you mean 'ranges'? there are: app, brokers, ending, epoch, malformed, metadata, patience, prefix, \
ranges, slice, stage, starting, step, topic, topic_id, value, and kafka.… for settings of librdkafka
    """

    cluster: Cluster
    topic: str
    topic_id: str
    """Kafka's id of the topic to read; "" for the topic that has the name now."""
    ranges: Mapping[int, tuple[Offset, Offset]] | None
    starting: Bound
    ending: Bound
    value: Format
    metadata: Mapping[str, str]
    """Column → its part of a record."""
    skip_malformed: bool
    slice: int
    """Most offsets that one task reads; 0: as the cores need."""
    patience: float
    """Seconds that a task waits for the next record of its range."""
    step: int | Mapping[str, int] | None
    """The last step whose output is wanted, for each task or all."""
    steps_topic: str
    epoch: int | Literal["latest"] | None
    """The complete epoch whose records are wanted."""
    epochs_topic: str

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """From Spark's options, with names in lower case. Raises ConfigError."""
        options = dict(given)
        client = {name.removeprefix(CLIENT): options.pop(name) for name in list(options) if name.startswith(CLIENT)}
        if unknown := sorted(options.keys() - set(KNOWN)):
            hint = f"{did_you_mean(unknown[0], KNOWN)}, and {CLIENT}… for settings of librdkafka"
            raise ConfigError(f"there is no option {unknown[0]!r}", hint=hint)
        for needed, example in (("brokers", "broker-1:9092"), ("topic", "bids")):
            if not options.get(needed):
                raise ConfigError(f"the option {needed!r} is missing", hint=f'give .option("{needed}", "{example}")')
        ranges = _ranges(options["ranges"]) if "ranges" in options else None
        if ranges is not None and options.keys() & {"starting", "ending"}:
            raise ConfigError("'ranges' says where to begin and end already", hint="leave out 'starting' and 'ending'")
        value = format_of(options["value"], where="option 'value'") if "value" in options else Raw()
        step = _step(options["step"]) if "step" in options else None
        if step is not None and "app" not in options:
            raise ConfigError("the option 'step' needs to know whose", hint='give .option("app", "the flow\'s name")')
        epoch = _epoch(options["epoch"]) if "epoch" in options else None
        if epoch is not None and (
            options.keys() & {"ranges", "starting", "ending", "step"} or not {"app", "stage"} <= options.keys()
        ):
            raise ConfigError(
                "the option 'epoch' needs to know of which batch part, and says itself what is read",
                hint='give .option("app", …).option("stage", …), and neither ranges, starting, ending nor step',
            )
        prefix, app = options.get("prefix", PREFIX), options.get("app", "")
        return cls(
            cluster=Cluster(options["brokers"], client),
            topic=options["topic"],
            topic_id=options.get("topic_id", ""),
            ranges=ranges,
            starting=_bound(options.get("starting", "earliest"), "starting"),
            ending=_bound(options.get("ending", "latest"), "ending"),
            value=value,
            metadata=_metadata(options.get("metadata", "" if "value" in options else ",".join(RECORD)), value),
            skip_malformed=_one_of("malformed", options.get("malformed", "fail"), ("fail", "skip")) == "skip",
            slice=_positive("slice", options["slice"]) if "slice" in options else 0,
            patience=duration(options.get("patience", "2m"), where="option 'patience'").total_seconds(),
            step=step,
            steps_topic=steps_topic(prefix, app),
            epoch=epoch,
            epochs_topic=epochs_topic(prefix, app, options.get("stage", "")),
        )


def _ranges(text: str) -> dict[int, tuple[Offset, Offset]]:
    try:
        given = ast.literal_eval(text)
        found = {int(p): (Offset(start), Offset(end)) for p, (start, end) in given.items()}
        whole = all(type(n) is int for pair in found.values() for n in pair)
        if found and whole and min(found) >= 0 and all(0 <= start <= end for start, end in found.values()):
            return found
    except (AttributeError, SyntaxError, TypeError, ValueError):
        pass
    raise ConfigError(
        f"{text!r} does not say what to read",
        where="option 'ranges'",
        hint='for each partition give where to begin, and where to end, which is not read: {"0": [0, 1000], "1": [0, 990]}',
    )


def _bound(text: str, option: str) -> Bound:
    if text in ("earliest", "latest"):
        return text
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigError(
            f"{text!r} is not a valid position in a topic",
            where=f"option {option!r}",
            hint='give "earliest", "latest", a time with its zone ("2026-01-31T12:00:00Z"), or milliseconds since 1970',
        )
    return millis_since_1970(moment)


def _metadata(text: str, value: Format) -> dict[str, str]:
    """`offset, timestamp`, or `{"record_offset": "offset"}` for other names."""
    where = "option 'metadata'"
    if text.strip().startswith("{"):
        wanted = _literal(text, dict, where)
        columns = {str(column): str(what) for column, what in wanted.items()}
    else:
        columns = {name: name for name in map(str.strip, text.split(",")) if name}
    for column, what in columns.items():
        if what not in RECORD:
            raise ConfigError(f"a record has no {what!r}", where=where, hint=did_you_mean(what, RECORD))
        if column in (value.schema or {}):
            hint = f'rename the latter: {{"record_{what}": "{what}"}}'
            raise ConfigError(f"{column!r} is a column of the value and of the metadata", where=where, hint=hint)
    return columns


def _step(text: str) -> int | dict[str, int]:
    if text.isdigit():
        return int(text)
    steps = _literal(text, dict, "option 'step'")
    if steps and all(isinstance(task, str) and type(step) is int for task, step in steps.items()):
        return dict(steps)
    raise ConfigError(
        f"{text!r} is not a step", where="option 'step'", hint='give 17, or {"stats/0": 17, "stats/1": 20}'
    )


def _epoch(text: str) -> int | Literal["latest"]:
    if text == "latest":
        return "latest"
    if text.isdigit():
        return int(text)
    raise ConfigError(f"{text!r} is not an epoch", where="option 'epoch'", hint='give "latest", or a number')


def _literal(text: str, kind: type, where: str) -> Any:
    try:
        found = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        found = None
    if not isinstance(found, kind):
        raise ConfigError(f"{text!r} cannot be read", where=where, hint="write it as in JSON")
    return found


def _one_of(option: str, text: str, words: tuple[str, ...]) -> str:
    if text not in words:
        raise ConfigError(f"{option!r} is {text!r}", hint=f"give {' or '.join(map(repr, words))}")
    return text


def _positive(option: str, text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise ConfigError(f"{option!r} is {text!r}", hint="give a number greater than zero")
    return int(text)
