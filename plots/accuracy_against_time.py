"""Accuracy (or another metric) against virtual time: mean over seeds with a 95 % band, one curve per protocol."""

from vflsim.plotting.script import main

if __name__ == "__main__":
    main("time", __doc__)
