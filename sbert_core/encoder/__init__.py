"""Texts to vectors: the sentence encoder, the cross-encoder, and the folders they are stored in."""
