"""Accuracy (or another metric) against the ε spent: mean over seeds with a 95 % band, one curve per mechanism."""

from vflsim.plotting.script import main

if __name__ == "__main__":
    main("epsilon", __doc__)
