"""Data on disk: schemas, manifests, file formats, datasets, tables and training examples."""
