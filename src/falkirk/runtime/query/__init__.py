"""The state of running tasks, over HTTP.

    request ──▶ endpoint ──token──▶ router ──a task that runs here──▶ answer from a snapshot of its store
                                      │
                                      └─────another worker's task───▶ one request to that worker, which forwards nothing

The rule for an answer about a key k of task t:

    answer(k) = (n, state(n)[k])      where  n = the step of the snapshot that k is read from
                                             state(n) = fold of the circuit over divisions 0..n
                                             n ≤ last committed step of t, and ≥ `min-step`

A store takes the changes of step n in one write with the number n, and only after n has committed (`checkpoint.transaction`,
clause 4). Staged and committing steps are in overlays over the store (`checkpoint.pipeline`), which nothing here reads. So an
answer never shows a step that may abort. It shows a committed step as soon as its worker knows that it has committed.

A worker that has lost a task without knowing it answers with a step that has committed, although later ones may have. The
number says so. Each answer is of one task: no snapshot spans tasks.

endpoint.py     the HTTP server: tokens, limits, errors as JSON
router.py       which task a question is about, who has it, and the whole answer
forwarding.py   the request to another worker
owners.py       which worker runs a task, and its address, as workers report it
questions.py    a URL as a question
answers.py      one task's part of an answer, from a snapshot
"""

from __future__ import annotations
