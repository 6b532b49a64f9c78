"""Real flows in the simulated world: the steps of their tasks are production's own.

flowing.py          what the others build on: an application that is a flow of one stage
shadows.py          a shadow beside an app, and what it has made

joins.py            a source gets another topic, or more partitions, during the run
broadcasts.py       a broadcast table grows during the run
windows.py          windows of event time, and selective rollback
moves.py            a changed flow moves state to another schema
rebuilds.py         a changed flow rebuilds an operator from its inputs
shadow_workers.py   the workers of a shadow rebuild an operator beside an app
"""
