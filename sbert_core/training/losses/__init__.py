"""Objectives: what is learned from a batch, and their registry."""
