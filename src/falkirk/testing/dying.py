"""A step during which the worker is killed at each point."""

from __future__ import annotations

from falkirk.testing.app import App
from falkirk.testing.process import Deaths, Ending, Killed
from falkirk.testing.simulator.plan import FOREVER


def step_dying(app: App, ending: Ending, *, before: bool) -> bool:
    """Run one step as `App.step` does, while the worker is killed at each point of it: see `Deaths`.

    With `before`, it is killed before the step too, and loses its disk. False: nothing was left to do.

    >>> import falkirk as fk
    >>> flow = fk.Flow("copy")
    >>> flow.source("words", value=fk.Text("word")).sink("copies", value=fk.Text("word"))
    >>> app = App(flow)
    >>> app.send("words", [{"word": "to"}])
    >>> step_dying(app, Ending.UNHEARD, before=True)
    True
    """
    if not app._closed():
        return False
    if before:
        app._die(host=True)
        app._closed()
    deaths = Deaths(app._cluster, ending, before=before)
    while True:
        try:
            if not app._worker().commit(deaths):
                deaths.aborted()
        except Killed:
            app._die()
        if deaths.over:
            break
        app._closed()
    if ending in (Ending.UNFLUSHED, Ending.FLUSHED):
        app._die(keep=FOREVER if ending is Ending.FLUSHED else 0)
    app._worker().flush()
    app._note()
    return True
