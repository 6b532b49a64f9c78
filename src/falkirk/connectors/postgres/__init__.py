"""PostgreSQL: connections, tables, and the outlet of a sink.

client.py    a connection with its time-outs, and errors in words
tables.py    the table of a sink and the table of positions: created, or compared with the flow
outlet.py    writes a chunk of rows and its position in one transaction
"""
