"""Clusters of a corpus and their descriptions, distributed over blocks."""
