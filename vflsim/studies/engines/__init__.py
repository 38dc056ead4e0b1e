"""Engines that execute runs: this process, worker processes, a Ray cluster."""
