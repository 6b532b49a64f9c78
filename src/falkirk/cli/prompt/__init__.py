"""`falkirk sql --dev`: a prompt for SQL on an embedded Kafka.

statements.py    lines become statements
session.py       what each statement does
apps.py          a query as an app: its process, its topics, its end
results.py       the rows of a result, and how they look
toml.py          tables from a file
loop.py          reads, runs, and says what went wrong, until quit
"""
