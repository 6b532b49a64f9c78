"""One query of NexMark as an app. Environment variables choose it:

NEXMARK_QUERY     its number, 5 by default
NEXMARK_TEXT      dsl (queries.py) or sql (texts.py)
NEXMARK_REGIME    eager or lazy
NEXMARK_STEP      how long a step stays open
NEXMARK_ROWS      how many records a step reads at most
NEXMARK_APP       the app's name, nexmark-q5 by default; its result is in the topic q5, or NEXMARK_TARGET

    python examples/nexmark/fill.py localhost:9092 --events 1000000
    NEXMARK_QUERY=5 falkirk run examples/nexmark/app.py --brokers localhost:9092
"""

from __future__ import annotations

import os

import queries
import texts

import falkirk as fk

REGIMES = {"eager": fk.EagerCheckpoint, "lazy": fk.LazyCheckpoint}
FORMS = {"dsl": queries.flow, "sql": texts.flow}

number = int(os.environ.get("NEXMARK_QUERY", "5"))
regime = REGIMES[os.environ.get("NEXMARK_REGIME", "eager")](
    step=os.environ.get("NEXMARK_STEP", "100ms"), max_rows=int(os.environ.get("NEXMARK_ROWS", "200000"))
)
flow = FORMS[os.environ.get("NEXMARK_TEXT", "dsl")](
    number, regime, app=os.environ.get("NEXMARK_APP"), target=os.environ.get("NEXMARK_TARGET")
)
