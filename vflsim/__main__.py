"""The console script, and ``python -m vflsim``."""

import signal


def script() -> None:
    """Run the command line. While its modules are imported, Ctrl-C ends the process: an exception may be swallowed."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from vflsim.cli import script as run

    run()


if __name__ == "__main__":
    script()
