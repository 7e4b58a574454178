"""Repository maintenance that is not in the wheel: run ``python -m tools.NAME`` in its root."""
