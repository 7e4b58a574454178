"""A support rule of one's own: an isolation forest of the inputs."""

from sklearn.ensemble import IsolationForest

from lvd.support import Support, SupportRule


class ForestSupport(SupportRule):
    """Unknown is what an isolation forest takes for an outlier."""

    def __init__(self, contamination=0.01):
        self.contamination = contamination

    def fit(self, rows, seed):
        forest = IsolationForest(n_estimators=50, contamination=self.contamination, random_state=seed)
        self.forest_ = forest.fit(self._numbers(rows))
        return self

    def check(self, rows):
        known = self.forest_.predict(self._numbers(rows)) > 0
        return Support.of(known, "an isolation forest takes this row for an outlier")

    def _numbers(self, rows):
        return rows.embeddings if rows.numbers is None else rows.numbers
