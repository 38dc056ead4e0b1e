"""Text for terminals: progress and results of studies and sweeps."""
