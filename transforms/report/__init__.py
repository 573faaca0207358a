"""What the report shows, gathered from the datasets."""
