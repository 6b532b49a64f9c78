"""The app of examples/travel, with all four regimes: its answers, and kills of everything that it consists of.

    oracle.py      what it must answer: a search in plain Python, and Polars
    stand.py       the app with its gateways, the clients that ask it, and what is compared in the end
    trial.py       kills, as many as one likes

`python -m tests.travel --kills 1000` is the long trial; a short one is in the test suite.
"""
