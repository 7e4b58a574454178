"""What maintains the repository, and is not in the wheel: ``python -m tools.NAME`` in its root."""
