"""Clusters of rows: the algorithms, the membership of rows, exemplars, and quality."""
