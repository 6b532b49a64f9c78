"""What `bench/run.py` measures: a module for each part. Its function `measure` returns what is written to the results.

- `throughput.py`: records a second, beside bare loops, Quix Streams and Kafka Streams
- `latency.py`: from the sending of a record to its output
- `recovery.py`: from kill -9 to the next output
- `restore.py`: the same on a host without a store
- `memory.py`: memory and disk, while a state grows
- `spark.py`: what Spark reads from Kafka, by its own connector and by Falkirk's
- `epochs.py`: what an epoch publishes, and what a stream waits beside one
- `tasks.py`: what a worker costs by the number of its tasks
- `nexmark/`: NexMark's queries, beside Flink SQL, Kafka Streams and Quix Streams
"""
