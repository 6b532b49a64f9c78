"""What a store keeps, in words that are compared: one line an operator, with its tables' numbers first.

    1: stats v1: auction Int64 → n = len [Int64]
    2 3: alarm v2: door String → state [open Boolean]
    ~4: sums v1: auction Int64 → total = sum [Int64]       no longer kept
    >5 6: door v1: door String → state [opened Int64]      moved: a later line of its operator has what was there
    *7: tops v1: auction Int64 → top = max [Int64]         rebuilt: a later line of its operator has what the input gives

A table's number is a byte of every key. So no other table ever gets it, not even when the operator is gone: its rows
may be left, here or in a log. From one schema to the next

    what is kept     the same words: it keeps its numbers, and continues
    what is new      takes numbers that were never used, and begins empty
    what has moved   its line stays, with >; the operator's new line takes what its tasks find under the old numbers
    what is rebuilt  its line stays, with *; the operator's new line begins empty, and takes what its tasks read again
    what is gone     its line stays, with ~, and so do those that had moved to it
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from falkirk.errors import StateError

TABLES = 255
"""A table's number is one byte of a key in state."""
SIGNS = "~>*"
NOTHING = "nothing"
"""The words of a rebuilt operator that has kept nothing so far: its own line, with a number for the mark."""


@dataclass(frozen=True, slots=True)
class Line:
    """What one operator keeps."""

    numbers: tuple[int, ...]
    words: str
    """Its id, its version, and its rows' columns."""
    sign: str = ""

    @property
    def kept(self) -> bool:
        """Whether the operator keeps this now."""
        return not self.sign

    @property
    def moved(self) -> bool:
        """Whether a later line of the operator has taken its rows over, or is about to."""
        return self.sign == ">"

    @property
    def rebuilt(self) -> bool:
        """Whether a later line of the operator has replaced it by what the input gives, or is about to."""
        return self.sign == "*"

    @property
    def id(self) -> str:
        """Its operator's."""
        return self.words.partition(" ")[0]

    def __str__(self) -> str:
        return f"{self.sign}{' '.join(map(str, self.numbers))}: {self.words}"


def lines(schema: str) -> list[Line]:
    """A schema's lines.

    >>> lines("1 2: stats v1: a Int64\\n~3: sums v1: b")  # doctest: +NORMALIZE_WHITESPACE
    [Line(numbers=(1, 2), words='stats v1: a Int64', sign=''), Line(numbers=(3,), words='sums v1: b', sign='~')]
    """
    found = []
    for line in schema.splitlines():
        head, _, words = line.lstrip(SIGNS).partition(": ")
        numbered = head.replace(" ", "").isdigit()
        sign = line[0] if line[0] in SIGNS else ""
        found.append(Line(tuple(map(int, head.split())), words, sign) if numbered else Line((), line))
    return found


def evolved(
    before: str,
    now: Mapping[str, int],
    earlier: Mapping[str, int] = MappingProxyType({}),
    rebuilt: Collection[str] = (),
) -> str:
    """The schema that follows `before` when operators with these words keep so many tables each, and can take over what
    was kept in the words of `earlier`. Those `rebuilt`, by id, begin again if their words differ. Raises StateError.

    >>> first = evolved("", {"stats v1: n": 1, "alarm v1: s": 2})
    >>> print(first)
    1 2: alarm v1: s
    3: stats v1: n
    >>> print(evolved(first, {"stats v1: n": 1, "sums v1: t": 1}))
    ~1 2: alarm v1: s
    3: stats v1: n
    4: sums v1: t
    >>> print(evolved(first, {"stats v2: m": 1, "alarm v1: s": 2}, {"stats v1: n": 1}))
    1 2: alarm v1: s
    >3: stats v1: n
    4: stats v2: m
    >>> print(evolved(first, {"stats v2: n": 1, "alarm v1: s": 2, "sums v1: t": 1}, rebuilt=["alarm", "stats", "sums"]))
    1 2: alarm v1: s
    *3: stats v1: n
    4: stats v2: n
    *5: sums nothing
    6: sums v1: t
    """
    old = lines(before)
    kept = {line.words for line in old if line.kept and now.get(line.words) == len(line.numbers)}
    fresh = {id_of(words) for words in now.keys() - kept} & set(rebuilt)
    again = {line.words for line in old if line.kept and line.id in fresh}
    moved = {line.words for line in old if line.kept and earlier.get(line.words) == len(line.numbers)} - kept - again
    lasting = {line.id for line in old if line.kept and line.words in kept | moved | again}

    def sign(line: Line) -> str:
        if line.kept:
            return "" if line.words in kept else "*" if line.words in again else ">" if line.words in moved else "~"
        if line.id not in lasting or (line.moved and line.id in fresh):
            return "~"
        return line.sign

    free = max((n for line in old for n in line.numbers), default=0) + 1
    new = []
    for words in sorted(now.keys() - kept):
        if (id_ := id_of(words)) in fresh and id_ not in lasting:
            new.append(Line((free,), f"{id_} {NOTHING}", "*"))
            free += 1
        new.append(Line(tuple(range(free, free + now[words])), words))
        free += now[words]
    if free > TABLES + 1:
        raise StateError(
            f"the stage has come to {free - 1} tables of state, those that are no longer kept among them, and a key has room "
            f"for {TABLES}",
            hint="cut the stage in two with repartition(…), or give the flow another name: it then starts from scratch",
        )
    return "\n".join(map(str, [*(Line(o.numbers, o.words, sign(o)) for o in old), *new]))


def id_of(words: str) -> str:
    """The id of the operator with these words."""
    return words.partition(" ")[0]


def same_but_for_version(words: str, others: str) -> bool:
    """Whether rows are the same in both.

    >>> same_but_for_version("stats v1: a → n", "stats v2: a → n"), same_but_for_version("stats v1: a → n", "stats v2: a → m")
    (True, False)
    """
    return words.partition(": ")[2] == others.partition(": ")[2]


@dataclass(frozen=True, slots=True)
class Change:
    """From one schema to one evolved from it: operators, by id."""

    kept: frozenset[str]
    moved: frozenset[str]
    """Those that continue from what their earlier version kept."""
    rebuilt: frozenset[str]
    """Those that begin empty and read the input again."""
    lost: frozenset[str]
    """Those whose state is not what their owner may expect: gone, different, or back without it."""


def change(before: str, after: str) -> Change:
    """What changed from one to the other.

    >>> found = change("1: a v1\\n2: b v1\\n3: c v1", "1: a v1\\n~2: b v1\\n~3: c v1\\n4: c v2\\n5: d v1")
    >>> sorted(found.kept), sorted(found.lost)
    (['a'], ['b', 'c'])
    """
    was = {line.words: line for line in lines(before)}
    now = {line.words: line for line in lines(after) if line.kept}
    then = {line.numbers: line for line in lines(after)}
    kept = {words for words, line in now.items() if words in was and was[words] == line}
    left = {words for words, line in was.items() if line.kept and words not in kept}
    moved = {words for words in left if (line := then.get(was[words].numbers)) is not None and line.moved}
    had = {line.numbers for line in lines(before) if line.rebuilt}
    rebuilt = {line.words for line in then.values() if line.rebuilt and line.numbers not in had}
    goes_on = {id_of(words) for words in moved | rebuilt}
    back = {words for words in now.keys() & was.keys() - kept if now[words].id not in goes_on}
    return Change(*(frozenset(map(id_of, some)) for some in (kept, moved, rebuilt, left - moved - rebuilt | back)))


def numbers(schema: str) -> dict[str, tuple[int, ...]]:
    """The numbers of each operator's tables, by its id."""
    return {line.id: line.numbers for line in lines(schema) if line.kept}


def moved(schema: str) -> list[Line]:
    """What earlier versions of still existing operators kept.

    >>> [line.numbers for line in moved(">1: a v1\\n2: a v2\\n~3: b v1")]
    [(1,)]
    """
    return [line for line in lines(schema) if line.moved]


def rebuilt(schema: str) -> list[Line]:
    """What operators kept before a rebuild, done or under way.

    >>> [line.words for line in rebuilt("*1: a v1\\n2: a v2\\n>3: b v1\\n4: b v2")]
    ['a v1']
    """
    return [line for line in lines(schema) if line.rebuilt]


def follows(before: str, now: str) -> bool:
    """Whether a store of one schema may be opened with another: no number has other rows than before, and what has moved is
    not kept again, nor what is no longer kept.

    >>> follows("1: a v1", "1: a v1\\n2: b v1"), follows("1: a v1\\n2: b v1", "1: a v1"), follows("~1: a v1", "1: a v1")
    (True, False, False)
    >>> follows("1: a v1", ">1: a v1\\n2: a v2"), follows(">1: a v1", "1: a v1"), follows(">1: a v1", "~1: a v1")
    (True, False, True)
    >>> follows("1: a v1", "*1: a v1\\n2: a v2"), follows("*1: a v1\\n2: a v2", "*1: a v1\\n2: a v2\\n3: b v1")
    (True, True)
    """
    there = {line.numbers: line for line in lines(now)}
    taken = {n for line in lines(before) for n in line.numbers}
    for was in lines(before):
        found = there.pop(was.numbers, None)
        if found is None or found.words != was.words or (was.sign and found.sign not in ("~", was.sign)):
            return False
    return taken.isdisjoint(n for numbers in there for n in numbers)


def difference(old: str, new: str) -> str:
    """The operators that differ, by line, as they were (−) and as they are (+).

    >>> print(difference("1: a v1 n:Int64\\n2: b v1 s:String", "3: a v1 n:Float64\\n2: b v1 s:String"))
      − a v1 n:Int64
      + a v1 n:Float64
    >>> print(difference("1: a v1 n:Int64", "~1: a v1 n:Int64\\n2 3: a v1 n:Int64"))
      ± a v1 n:Int64, with other tables, which depend on what it reads
    """
    signs = {"- ": "  − ", "+ ": "  + "}
    was, now = ([line for line in lines(s) if line.kept] for s in (old, new))
    found = difflib.ndiff([line.words for line in was], [line.words for line in now])
    changed = [signs[line[:2]] + line[2:] for line in found if line[:2] in signs]
    tables = {line.words: len(line.numbers) for line in was}
    other = [line.words for line in now if tables.get(line.words, len(line.numbers)) != len(line.numbers)]
    changed += [f"  ± {words}, with other tables, which depend on what it reads" for words in other]
    return "\n".join(changed) or "  the operators' ids or versions differ"
