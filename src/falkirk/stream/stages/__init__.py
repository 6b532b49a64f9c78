"""Stages: operators fused between edges, and what each reads, writes and keeps.

plan.py          the plan of a flow, and what a stage is to those who run it
stage.py         a stage as the planner makes it
projection.py    which columns are needed
kept.py          what operators keep, for the fingerprint
"""

from __future__ import annotations
