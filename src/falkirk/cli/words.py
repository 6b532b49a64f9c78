"""The words that a reader must know, each in one sentence, and one picture of them, as in docs/concepts/index.md."""

from __future__ import annotations

WORDS = {
    "step": "a micro-batch of one task and its Kafka transaction: all of it is committed, or nothing",
    "stage": "operators that run together, without Kafka in between",
    "task": "one partition of a stage: what a worker owns, and what is recovered",
    "version": "a saved snapshot of a task's state",
    "epoch": "one run of a batch part: Spark computes it from fixed offsets of the topics",
    "regime": "what is saved and when: eager, lazy or batch",
}

PICTURE = """\
topic bids      stage 1: filter     edge        stage 2: count   topic stats
                                 (a topic)      (has state)
partition 0 ──▶ task 0 ────────▶ 0 ───────────▶ task 0 ────────▶ partition 0
partition 1 ──▶ task 1 ────────▶ 1 ───────────▶ task 1 ────────▶ partition 1

a task:         step 0 ─ step 1 ─ step 2 ─ step 3 ─ step 4 ─▶ time
                              └ version 1        └ version 2

  step          read records ─▶ run operators ─▶ commit in one transaction:
                outputs, changes of the state, offsets that were read

a batch part:   ├─ epoch 0 ─┤      ├── epoch 1 ──┤ ─▶ time, computed by Spark

regime  eager   a step saves each change of the state; recovery applies them
        lazy    a step saves no state; recovery opens the newest version, and
                runs the steps after it again
        batch   no steps: Spark computes epochs"""

EPILOG = "\b\nHow a flow runs:\n\n\b\n" + PICTURE.replace("\n\n", "\n\n\b\n")
"""For a command's --help: click leaves the lines of such paragraphs as they are."""
