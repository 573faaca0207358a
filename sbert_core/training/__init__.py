"""Training of the encoders: what to learn from, what is learned, and the loop."""
