"""Accuracy (or another metric) against the energy of all: mean over seeds with a 95 % band, one curve per protocol."""

from vflsim.plotting.script import main

if __name__ == "__main__":
    main("energy", __doc__)
