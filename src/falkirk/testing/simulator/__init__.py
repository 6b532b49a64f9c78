"""A deterministic world to test the step protocol in: a cluster, workers, stores, clocks, and faults."""
