"""Results of sweeps and tunings: many results folders with one page."""
