"""Groups of rows: the algorithms, how rows belong to clusters, and how good a clustering is."""
