"""What the mean round, and the average client's time, are made of, one bar a protocol."""

from vflsim.plotting.script import main

if __name__ == "__main__":
    main("breakdown", __doc__)
