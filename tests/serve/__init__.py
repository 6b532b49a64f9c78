"""Requests over HTTP: `python -m tests.serve --help` runs the long trial."""
