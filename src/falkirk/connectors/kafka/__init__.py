"""Kafka, through librdkafka. Each room imports only rooms below it.

app_topics/      the control topic of an app, and the topics of epochs
group/           the group that owns tasks
transactions/    the protocol's log
reading/         reads of inputs, of bounded ranges, and for people
admin/           what a cluster has: topics, groups, access rights
client/          clients: their settings, how they are made, and what their errors mean
"""
