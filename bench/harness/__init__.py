"""What starts and watches everything that is measured. It knows nothing of what is measured.

- `broker.py`: the Kafka of a benchmark, in a temporary folder
- `circuits.py`: circuits without a broker, a whole flow or one operator, over RocksDB
- `command.py`: a command whose help is the docstring of its module
- `environments.py`: what the peers need besides Falkirk's own environment, installed once
- `machine.py`: the machine, the versions, and whether others are busy there
- `processes.py`: processes that end with the benchmark, and say results as lines of JSON
- `setting.py`: sizes, screen, and the summary of several runs
- `usage.py`: CPU time of processes between two moments
"""
