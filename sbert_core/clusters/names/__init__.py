"""Names for clusters, from the words of their texts."""
