"""Accuracy (or another metric) against bytes sent by all: mean over seeds with a 95 % band, one curve per protocol."""

from vflsim.plotting.script import main

if __name__ == "__main__":
    main("bytes", __doc__)
