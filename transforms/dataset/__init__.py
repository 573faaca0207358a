"""Datasets on any file system: found, sliced, read, written, locked, published and checked."""
