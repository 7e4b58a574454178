"""Prometheus metrics: requests, their duration, rows, and how many rows are unknown."""

from __future__ import annotations

from collections import deque

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from lvd.serve.answers import Reply

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LATEST = 1000
"""How many of the latest requests with rows enter the share of unknown rows."""


class Gauges:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("lvd_requests", "Requests.", ["path", "status"], registry=registry)
        self.calls = Counter(
            "lvd_model_calls", "Calls of the model; requests may share one.", registry=registry
        )
        self.seconds = Histogram(
            "lvd_request_seconds", "Time to answer.", ["path"], buckets=BUCKETS, registry=registry
        )
        self.rows = Counter("lvd_rows", "Rows answered.", ["path"], registry=registry)
        self.unknown = Counter(
            "lvd_unknown_rows", "Predicted rows that resemble no training row.", registry=registry
        )
        self.share = Gauge(
            "lvd_unknown_share", f"Their share in the latest {LATEST} predictions.", registry=registry
        )
        self.model = Gauge("lvd_model_info", "The model in force.", ["version"], registry=registry)
        self.loaded = Gauge("lvd_model_loaded_timestamp_seconds", "When it was loaded.", registry=registry)
        self.failures = Gauge(
            "lvd_reload_failures", "Newer models that could not be loaded.", registry=registry
        )
        self._latest: deque[tuple[int, int]] = deque()
        self._n_rows = self._n_unknown = 0

    def note_request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def note_rows(self, path: str, answer: Reply) -> None:
        """Count the rows of a request."""
        self.rows.labels(path).inc(answer.n_rows)
        if path != "/predict":
            return
        self.unknown.inc(answer.n_unknown)
        self._latest.append((answer.n_rows, answer.n_unknown))
        gone = self._latest.popleft() if len(self._latest) > LATEST else (0, 0)
        self._n_rows += answer.n_rows - gone[0]
        self._n_unknown += answer.n_unknown - gone[1]
        self.share.set(self._n_unknown / max(1, self._n_rows))

    def note_model(self, version: str, loaded_at: float, n_failures: int) -> None:
        """Record the current model."""
        self.model.clear()
        self.model.labels(version).set(1)
        self.loaded.set(loaded_at)
        self.failures.set(n_failures)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self.registry)
