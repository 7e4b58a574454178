"""The arena: many methods on many tables."""
