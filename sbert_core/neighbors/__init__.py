"""Which rows are near each other: exact and in cells, and the pairs and duplicates that follow."""
