"""Datasets on any file system: listing, slicing, reading, writing, locking, publishing and verifying them."""
