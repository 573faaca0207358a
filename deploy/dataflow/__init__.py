"""The Dataflow flex templates."""
