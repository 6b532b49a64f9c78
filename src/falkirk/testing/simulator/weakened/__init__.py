"""Protocols that lack one clause each, to show what the clause is for.

weakening.py                the type: a clause that is patched away, and a run that breaks without it
weaken.py                   all weakenings by name; applies them, and searches for runs that break

Patches, by what they weaken:
    weak.py                 names, fences and take-overs
    weak_transactions.py    transactions, doubts and corrections
    weak_coordinators.py    answers of coordinators that have moved, and of brokers that refuse
    weak_lines.py           transactions over slow lines
    weak_recoveries.py      recoveries of several tasks in parallel
    weak_domains.py         commit domains of one worker
    weak_disks.py           full disks
    weak_copies.py          copies of versions in a checkpoint store that is away or damaged
    weak_edges.py           edges between two stages
    weak_broadcasts.py      broadcast tables
    weak_windows.py         selective rollback
    weak_joins.py           topics that join during the run
    weak_moves.py           state that moves to another schema
    weak_rebuilds.py        state that is rebuilt
    weak_shadows.py         state that is rebuilt beside the app
"""

from __future__ import annotations
