"""Time, rounds and bytes until the target is reached, with intervals over seeds; where it is not, that is marked."""

import argparse

from vflsim.plotting.script import main


def target(text: str) -> dict[str, float]:
    metric, _, value = text.partition("=")
    return {metric: float(value)}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target",
        type=target,
        help="another target than the scenario's, e.g. test_accuracy=0.85",
        metavar="METRIC=VALUE",
    )


if __name__ == "__main__":
    main("target", __doc__, options)
