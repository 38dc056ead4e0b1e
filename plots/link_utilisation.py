"""Share of time in which links move bytes, over the course of a run, one panel a protocol."""

import argparse

from vflsim.plotting.script import main


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--protocol", dest="protocols", action="append", help="draw this one only (may be repeated)")
    parser.add_argument("--seed", type=int, help="which seed (default: the first)")
    parser.add_argument("--bins", type=int, default=100, help="parts into which a run is divided")


if __name__ == "__main__":
    main("utilisation", __doc__, options)
