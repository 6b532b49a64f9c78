"""How often each word came, in a topic of lines of text.

falkirk dev examples/word_count.py:flow                                   # prints the address of its Kafka
echo "to be or not to be" | python examples/topic.py write lines --brokers ADDRESS
python examples/topic.py read word-counts --brokers ADDRESS               # to {"word":"to","count":2} …
"""

from __future__ import annotations

import re

import falkirk as fk


def words(row: dict[str, str]) -> list[dict[str, str]]:
    """A row for each word of a line."""
    return [{"word": word} for word in re.findall(r"\w+", row["value"].lower())]


flow = fk.Flow("word-count")
lines = flow.source("lines", value=fk.Text())

# Lines have no key, so equal words are in all partitions: grouping sends each word to its task, through a topic.
counts = lines.flat_map(words, returns={"word": str}).group_by("word", id="counts").agg(count=fk.len())
counts.sink("word-counts", key="word", value=fk.Json())
