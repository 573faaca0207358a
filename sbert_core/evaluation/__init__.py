"""Evaluation of encoders: scores on tasks, the health of the embedding space, and efficiency."""
