"""Groups by spans of event time, and by counts of rows.

windows.py          each row, once for each window that holds its time
window_group.py     groups in windows of event time, until the watermark completes a window
final.py            `final`: the results of complete windows, once each
count_group.py      groups in windows of so many rows

session_group.py    groups in sessions: rows with no long pause between them
spans.py            spans of time that join where they touch: what makes a session
session_fold.py     the arithmetic: sessions that become one, and their aggregates
session_step.py     one step: the stored sessions that rows touch, and what becomes of them
session_keys.py     where the last session of each group ends, so that rows in order need no scan
session_rows.py     the rows of sessions, where they are needed again
session_batch.py    the batch form

deduplicate.py      `deduplicate`: the first row of each key within some time
"""

from __future__ import annotations
