"""What is read and written: schemas, manifests, file formats, tables and examples."""
