"""What a cluster has: topics and their settings, groups, access rights.

topics.py            requests about topics: find, create, alter, trim, delete; offsets of partitions
described.py         a topic as the cluster describes it
topic_settings.py    the settings of the topics that Falkirk makes
members.py           a consumer group: its members, and what each is assigned
acls.py              access-control lists: what a user may do
"""

from __future__ import annotations
