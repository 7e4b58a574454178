"""Whole public calls against plain torch, and the speed page: ``python -m benchmarks.speed``."""
