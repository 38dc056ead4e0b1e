"""Write runs for Weights & Biases: offline, to be sent by ``wandb sync``; at once where WANDB_MODE is ``online``.

The step of a row is its number; the axis of all series is virtual time (``time_s``), and ``round`` is a series, too.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import Any

from vflsim.exporting.logs import Log, missing


def write(logs: Iterable[Log], place: Path, _uri: str | None) -> str:
    """Write the runs into a folder. Raises ResultsError if wandb is not installed."""
    try:
        import wandb
    except ImportError as error:
        raise missing("wandb", "wandb") from error
    place.mkdir(parents=True, exist_ok=True)
    mode: Any = os.environ.get("WANDB_MODE", "offline")
    settings = wandb.Settings(silent=True, console="off", x_disable_stats=True, x_disable_meta=True)
    count = 0
    for log in logs:
        run = wandb.init(
            project=log.study,
            group=log.group or None,
            name=log.name,
            dir=str(place),
            mode=mode,
            config=log.parameters,
            settings=settings,
            reinit="finish_previous",
        )
        run.define_metric("time_s")
        run.define_metric("*", step_metric="time_s")
        for step, (time_s, number, values) in enumerate(log.points()):
            run.log({"time_s": time_s, "round": number, **values}, step=step)
        run.summary.update({f"total/{name}": value for name, value in log.totals.items()})
        run.finish(exit_code=0 if log.finished else 1)
        count += 1
    send = "" if mode == "online" else f"; send them with: wandb sync {quote(str(place / 'wandb'))}/offline-run-*"
    return f"{count} runs in {place}{send}"
