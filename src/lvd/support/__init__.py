"""Support: whether training rows resemble a row, and the reason where none does."""

from lvd.support.rule import Reason, Support, SupportRule, TrainingSupport

__all__ = ["Reason", "Support", "SupportRule", "TrainingSupport"]
