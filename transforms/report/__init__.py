"""The data of the report, collected from the datasets."""
