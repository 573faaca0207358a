"""Training of encoders and cross-encoders: plans, data, objectives and the loop."""
