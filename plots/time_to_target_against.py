"""Time to the target against the value that a sweep changed."""

from vflsim.plotting.script import main

if __name__ == "__main__":
    main("sweep-target", __doc__)
