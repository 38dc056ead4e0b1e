"""Live runs: every party a process of its own, connected to the server by authenticated TCP."""
