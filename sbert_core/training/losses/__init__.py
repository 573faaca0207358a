"""Training objectives (losses) and their registry."""
