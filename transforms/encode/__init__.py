"""Sentences to embeddings, as Beam transforms and handlers."""
