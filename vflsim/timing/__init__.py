"""What decides *when*: delays, compute, network vocabulary, activation. Knows shapes and bytes, never values."""
