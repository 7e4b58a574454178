"""The paper's experiments: protocols, the runner, and the store of results."""
