"""Timeline: a Gantt chart of all parties, one panel per protocol."""

import argparse

from vflsim.plotting.script import main


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, help="which seed (default: the first)")


if __name__ == "__main__":
    main("timeline", __doc__, options)
