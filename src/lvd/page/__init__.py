"""The report page: one HTML file that shows whether the intervals hold, for whom, and why one is wide."""
