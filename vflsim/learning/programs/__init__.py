"""Training as programs: rounds of split training on tensors, of many runs side by side, without operations."""
