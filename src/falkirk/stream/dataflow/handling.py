"""The handling of failures: a record that does not decode, or a row for which a user's function raises.

Stop()         the app stops; after a restart it continues from that record
Skip()         the app skips it and counts it
DeadLetter()   a topic gets it with its address and the reason, in the same transaction as the step

chosen(o) = o's on_error=, else o's `.errors` if it is used, else the flow's on_error=,
            else DeadLetter() for records that do not decode and Stop() for functions
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from falkirk.errors import DefinitionError
from falkirk.stream.dataflow.graph import Graph
from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.dataflow.topics import Output
from falkirk.stream.definition.on_error import DeadLetter, OnError, Stop

DEAD_LETTERS = "dead letters"
"""The id of that output. A user's name cannot contain a space."""

ERRORS = pl.Schema(
    {
        "operator": pl.String(), "reason": pl.String(), "topic": pl.String(), "partition": pl.Int32(), "offset": pl.Int64(),
        "timestamp": pl.Datetime("ms", "UTC"), "key": pl.Binary(), "payload": pl.Binary(), "row": pl.String(),
    }
)  # fmt: skip
"""The columns of a stream of errors. If the source record is not known, `row` is the failed row as JSON, and `key` and
`payload` are null."""


@dataclass(frozen=True, slots=True)
class Handling:
    """The handling of failures in one operator of a stage. With none of these set, failures are skipped."""

    stops: bool = False
    letters: str | None = None
    """The topic of its dead letters."""
    share: float | None = None
    """If more than this share fails, the app stops."""
    errors: bool = False
    """Whether its stream of errors is used."""


def handlings(graph: Graph, operators: Sequence[Operator], dead_letters: str) -> dict[Operator, Handling]:
    """The handling for each operator of a stage that can fail. Raises DefinitionError."""
    here = {o.inputs[0] for o in operators if o.gives_errors}
    useful = graph.upstream(o for o in graph.operators if o.stateful or o.role == "sink")
    anywhere = {o.inputs[0] for o in useful if o.gives_errors}
    # If another stage computes the operator too, but not its stream of errors, it also continues after failures.
    defaults = {o: DeadLetter() if o in anywhere else graph.on_error for o in operators}
    return {
        o: _handling(o, defaults[o], dead_letters, errors=o in here) for o in operators if o.can_fail or o.can_refuse
    }


def _handling(operator: Operator, default: OnError | None, dead_letters: str, *, errors: bool) -> Handling:
    chosen = operator.on_error
    if errors and isinstance(chosen, Stop):
        raise DefinitionError(
            "an operator that stops the app has no stream of errors",
            where=operator.where,
            hint="leave out on_error=fk.Stop()",
        )
    if chosen is None and not errors:
        chosen = default or (DeadLetter() if operator.role == "source" else Stop())
    if isinstance(chosen, DeadLetter):
        return Handling(letters=chosen.topic or dead_letters, share=chosen.share, errors=errors)
    return Handling(stops=isinstance(chosen, Stop), errors=errors)


def letter_outputs(handled: Mapping[Operator, Handling], dead_letters: str) -> list[Output]:
    """The topics of dead letters. Each is one output, because a step numbers each output's records from 0."""
    topics = dict.fromkeys(h.letters for h in handled.values() if h.letters is not None)
    return [Output(letter_output(topic, dead_letters), topic, "dead_letters") for topic in topics]


def letter_output(topic: str, dead_letters: str) -> str:
    """The output id for a topic of dead letters."""
    return DEAD_LETTERS if topic == dead_letters else f"{DEAD_LETTERS} {topic}"
