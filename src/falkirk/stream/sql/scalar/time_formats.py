"""The formats of strftime and strptime: DuckDB's codes, written as Polars' codes.

%f %g %n    micro-, milli- and nanoseconds: %6f, %3f and %9f when written, and %.f with the point before it when read
%c %x %X    an ISO date, time, or both
%z          +00 when written, since times are in UTC; %#z when read
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

import narwhals as nw
import polars as pl
from sqlglot import exp

from falkirk.stream.formats import types as fk
from falkirk.stream.sql.scalar.times import moment_of
from falkirk.stream.sql.scalar.values import Build, Handler, Value, constant, need, null
from falkirk.stream.sql.text import Text

_BOTH = {
    **{code: f"%{code}" for code in "aAbBdmyYHIpMSj"}, **{f"-{code}": f"%-{code}" for code in "dmyHIMSj"},
    "h": "%b", "c": "%Y-%m-%d %H:%M:%S", "x": "%Y-%m-%d", "X": "%H:%M:%S", "T": "%H:%M:%S", "%": "%%",
}  # fmt: skip
_WRITTEN = {
    **_BOTH, "f": "%6f", "g": "%3f", "n": "%9f", "z": "+00", "w": "%w", "u": "%u", "U": "%U", "W": "%W", "G": "%G", "V": "%V",
}  # fmt: skip
_READ = {**_BOTH, **dict.fromkeys("fgn", "%.f"), "z": "%#z"}

_DATE = {"Y": "1900", "m": "01", "d": "01"}
_TIME = {"H": "00", "M": "00", "S": "00"}
"""What a text that does not say it means."""


def _format(build: Build, node: exp.TimeToStr) -> Value:
    at = moment_of(need(build, node.this, "time", "strftime")).expr
    form = _given(build, node)
    if form is None:
        return null(pl.String())
    parts = _parts(form, node, build.text, "strftime", _WRITTEN)
    return build.typed(node, at.dt.to_string("".join(plain + _WRITTEN.get(code, "") for plain, code in parts)))


def _parse(build: Build, node: exp.StrToTime) -> Value:
    x = need(build, node.this, "String", "strptime").expr
    form = _given(build, node)
    if form is None:
        return null(pl.Datetime("ms", "UTC"))
    parts = list(_parts(form, node, build.text, "strptime", _READ))
    codes = {code.lstrip("-") for _, code in parts}
    read = _reading(parts, codes, node, build.text)
    before, form = _unsaid(read)
    spelt = nw.concat_str([nw.lit(before), x]) if before else x
    moment = spelt.str.to_datetime(format=form + read).dt.replace_time_zone("UTC")
    if "y" in codes:  # 69 is 1969, and Polars takes it for 2069
        moment = nw.when(moment.dt.year() == 2069).then(moment.dt.offset_by("-100y")).otherwise(moment)
    return build.typed(node, moment.cast(fk.Datetime))


def _given(build: Build, node: exp.TimeToStr | exp.StrToTime) -> str | None:
    form: str | None = constant(build, node.args["format"], "the format of a time", "a text")
    if form is not None and "%" not in form:  # the parser gives the empty one as a word
        raise build.text.error(node, "the format of a time has no code", "write it: '%Y-%m-%d %H:%M:%S'")
    return form


def _parts(form: str, node: exp.Expr, text: Text, what: str, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Plain text and the code after it, without the percent sign. Raises DefinitionError if a code is not known."""
    plain, *rest = form.split("%")
    while rest:
        after = rest.pop(0)
        if not after and rest:  # %% is a percent sign
            yield plain, "%"
            plain = rest.pop(0)
            continue
        code = after[:2] if after.startswith("-") else after[:1]
        if code not in known:
            there = " ".join(f"%{c}" for c in known)
            raise text.error(node, f"{what} does not take %{code}", f"there are: {there}")
        yield plain, code
        plain = after[len(code) :]
    yield plain, ""


def _reading(parts: Sequence[tuple[str, str]], codes: Set[str], node: exp.Expr, text: Text) -> str:
    """A format of strptime for Polars. Raises DefinitionError if Polars would read something else."""
    if ("I" in codes) != ("p" in codes):
        raise text.error(
            node, "strptime takes %I with %p", "%I %p is an hour from 1 to 12 with AM or PM, and %H is one of 24"
        )
    if "y" in codes and "z" in codes:
        raise text.error(node, "strptime does not take %y with %z", "write the year with four digits: %Y")
    read = ""
    for plain, code in parts:
        read += plain
        if code and code in "fgn":
            if not read.endswith("."):
                raise text.error(node, f"strptime takes %{code} after a point", "%S.%f")
            read = read[:-1]
        read += _READ.get(code, "")
    return read


def _unsaid(read: str) -> tuple[str, str]:
    """A text to put before the one that is read, and its format: what the format leaves out of a date and a time.

    >>> _unsaid("%d.%m."), _unsaid("%Y %j"), _unsaid("%Y-%m-%d %I %p")
    (('1900 ', '%Y '), ('', ''), ('00 00 ', '%M %S '))
    """
    codes = {part[0] for part in read.replace("%%", "").replace("%-", "%").split("%")[1:]}
    meant = {"y": "Y", "b": "m", "B": "m", "I": "H", ".": "S"}
    said = codes | {meant[code] for code in codes & meant.keys()} | ({"m", "d"} if "j" in codes else set())
    missing = {**_DATE, **(_TIME if said & {*_TIME, "."} else {})}
    left = {code: value for code, value in missing.items() if code not in said}
    return "".join(f"{value} " for value in left.values()), "".join(f"%{code} " for code in left)


HANDLERS: Mapping[type[exp.Expr], Handler] = {exp.TimeToStr: _format, exp.StrToTime: _parse}
