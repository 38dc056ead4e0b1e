"""Who was waited for: share of rounds by client, one panel a protocol."""

from vflsim.plotting.script import main

if __name__ == "__main__":
    main("waited", __doc__)
