"""Molecules: QM8 and QM9, functional groups, and new scaffolds."""
