"""Share of time in which links move bytes, over a run, one panel per protocol."""

import argparse

from vflsim.plotting.script import main


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, help="which seed (default: the first)")
    parser.add_argument("--bins", type=int, default=100, help="number of bins per run")


if __name__ == "__main__":
    main("utilisation", __doc__, options)
