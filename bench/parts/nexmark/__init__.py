"""NexMark's queries, in Falkirk and in its peers, over the same topics.

- `measurement.py`: each query by everybody who has it, and the comparison with DuckDB
- `peers.py`: Flink SQL, Kafka Streams and Quix Streams: which queries they have, and how they are started
- `flink.py`: the queries in Flink SQL
- `circuits.py`: the cost of a query in its circuits alone, by operator
- `report.py`: NexMark's part of RESULTS.md
- `example.py`: the modules of examples/nexmark: events, topics, queries, and DuckDB's answers
"""
