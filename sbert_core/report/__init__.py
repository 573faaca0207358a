"""The report: one HTML page, and the map of the corpus in it."""
