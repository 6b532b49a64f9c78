"""The batch forms of operators that look at more rows than one: how rows of a key meet, and what is made of them then."""
