"""NexMark on a real broker, killed again and again: what a reader finally sees is what DuckDB gives.

python -m tests.nexmark --events 1000000 --kills 10 --query 4 --regime lazy

examples/nexmark/fill.py ──▶ person, auction, bid ──▶ falkirk run ──▶ q4 ──▶ read_committed ──▶ last row of each key
                                                         ▲                                        = DuckDB over all events
                                                      kill -9, of a worker or of all
"""
