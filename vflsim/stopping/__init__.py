"""What ends a run: the keys of ``stop``, and one small class for each, for events and for arrays."""
