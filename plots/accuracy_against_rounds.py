"""Accuracy (or another metric) against server steps: mean over seeds with a 95 % band, one curve per protocol."""

from vflsim.plotting.script import main

if __name__ == "__main__":
    main("rounds", __doc__)
