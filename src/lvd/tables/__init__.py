"""A user's table in, intervals out: reading, encoding, the table model, writing, and Ray."""
