"""Incremental relational operators in the soak: what they emit step by step, and the tables that they end with.

    python -m tests.soak --kills 1000 --flow relational --brokers 3

    bids ─┬─ sessions ── visits           eager    late rows, sessions, complete sessions, groups of sessions that change
          ├─ last ── best                 eager    top-k of rows that come; top-k of rows that are taken back
          │    └─ links ── near           lazy     a loop over rows that are taken back
          └─ lazily ── pairs ── paired    lazy     a left join in time, behind an exchange; groups of its changing rows

`oracle.py` says what each step must emit: every row and every retraction, with its timestamp. `tables.py` computes the
final tables from all bids at once, in SQL: it shares nothing with the oracle but what the flow means.
"""
