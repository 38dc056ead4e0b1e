"""Draw a figure of results or of a sweep: ``python plots/figure.py KIND RESULTS``, with all options of its function."""

from vflsim.plotting.script import main

if __name__ == "__main__":
    main(__doc__)
