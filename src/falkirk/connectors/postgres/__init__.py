"""PostgreSQL: connections, tables, and the outlet of a sink."""
