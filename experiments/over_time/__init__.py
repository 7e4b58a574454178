"""Intervals over time: who covers what was asked for while the world changes, and how sharply."""
