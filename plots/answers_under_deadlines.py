"""What trained models' servers answer by a deadline: a test metric against the time of an answer."""

from vflsim.plotting.script import main

if __name__ == "__main__":
    main("answers", __doc__)
