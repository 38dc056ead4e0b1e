"""Time, rounds and bytes until the target, with intervals over seeds; marks protocols that do not reach it."""

import argparse

from vflsim.plotting.script import main
from vflsim.results.statistics.targets import target_from_text


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target",
        type=target_from_text,
        help="another target than the scenario's: test_accuracy=0.85, or '{test_accuracy: 0.85, for: 20 s}'",
    )


if __name__ == "__main__":
    main("target", __doc__, options)
