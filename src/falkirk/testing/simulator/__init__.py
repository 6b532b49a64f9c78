"""A deterministic world to try the step protocol in: a cluster, workers, stores, clocks, and what befalls them."""
