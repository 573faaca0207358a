"""Nearest neighbours, exact and by cells, and the pairs and duplicates derived from them."""
