"""Neighbours, paraphrases, duplicates and search, distributed over the blocks of a corpus."""
