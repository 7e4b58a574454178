"""Whole public calls beside plain torch, and the page on speed: ``python -m benchmarks.speed``."""
