"""Clusters of a corpus and what they are about, distributed over blocks."""
