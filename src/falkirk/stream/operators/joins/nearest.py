"""The row of the other side that an as-of join gives to a row.

    place         =  time, or −time for "backward": so the best partner is the first one from the row's own place on
    match(a)      =  the first b with  place(a) ≤ place(b) ≤ place(a) + reach                    backward, forward
                     of that and the last b before it the nearer one, and of two as near the later one        nearest

Of several rows at one place the one with the least digest counts, so it is always the same one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from falkirk.state.entries import Numbers, digest


class Candidates:
    """Different rows with the numbers of their keys and their places."""

    def __init__(self, slots: Numbers, places: Numbers, packed: Sequence[bytes]) -> None:
        order = np.lexsort((places, slots))
        order = order[slots[order] >= 0]
        same = np.flatnonzero((np.diff(slots[order]) == 0) & (np.diff(places[order]) == 0))
        if len(same):
            digests = [digest(packed[i]) for i in order.tolist()]
            known = list(zip(slots[order].tolist(), places[order].tolist(), digests, strict=True))
            order = order[sorted(range(len(order)), key=known.__getitem__)]
        self.order, self.slots, self.places = order, slots[order], places[order]

    def matches(
        self, slots: Numbers, places: Numbers, reach: int, there: npt.NDArray[np.bool_], *, nearest: bool
    ) -> Numbers:
        """The candidate of each row at these places, of those that are `there`; −1: none. A slot of −1 has none.

        >>> some = Candidates(np.array([0, 0, 0]), np.array([3, 7, 7]), [b"a", b"b", b"c"])
        >>> at, there = np.array([1, 4, 6, 8]), np.array([True, True, True])
        >>> some.places[some.matches(np.zeros(4, np.int64), at, 3, there, nearest=False)[:3]].tolist()
        [3, 7, 7]
        """
        which = np.flatnonzero(there[self.order])
        known = np.unique(self.places[which])
        at = self.slots[which] * (len(known) + 1) + np.searchsorted(known, self.places[which])
        wanted = slots * (len(known) + 1) + np.searchsorted(known, places)
        later = np.searchsorted(at, wanted)
        found = self._near(which, later, slots, places, reach)
        if nearest:
            before = np.maximum(later - 1, 0)
            before = np.searchsorted(at, at[before]) if len(at) else before
            earlier = np.where(later > 0, self._near(which, before, slots, places, reach), -1)
            distance = [
                np.where(f >= 0, np.abs(self._place(f) - places), np.iinfo(np.int64).max) for f in (found, earlier)
            ]
            found = np.where(distance[1] < distance[0], earlier, found)
        return np.where(found >= 0, self.order[found], -1) if len(self.order) else found

    def _near(self, which: Numbers, at: Numbers, slots: Numbers, places: Numbers, reach: int) -> Numbers:
        """These candidates where they have the key and are within reach; else −1."""
        if not len(which):
            return np.full(len(slots), -1)
        found = which[np.minimum(at, len(which) - 1)]
        fits = (at < len(which)) & (self.slots[found] == slots) & (np.abs(self.places[found] - places) <= reach)
        return np.where(fits, found, -1)

    def _place(self, found: Numbers) -> Numbers:
        places: Numbers = self.places[found] if len(self.places) else np.zeros(len(found), np.int64)
        return places
