"""A user's table in, intervals out: reading, encoding, the model of a table, writing, and Ray."""
