"""Engines that the same jobs are run on: how each is started, and what was proven on it."""
