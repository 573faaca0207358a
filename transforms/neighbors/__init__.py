"""Neighbours, paraphrases, duplicates and search, distributed over blocks of a corpus."""
