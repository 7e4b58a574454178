"""Intervals over time: which methods keep their coverage under drift, and how sharply."""
