"""How good an encoder is: scores on tasks, the health of its space, what it costs."""
