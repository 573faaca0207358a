"""PTransforms that distribute what sbert_core computes."""
