"""Write runs as TensorBoard's event files: a folder for each run.

Every series is there twice: by rounds, and under ``by_time/`` by virtual milliseconds. The wall time of an event is its
virtual time in seconds, so that TensorBoard's axis “relative” shows virtual time, too. Values are of double precision.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from vflsim.exporting.logs import BY_TIME, Log, missing, step_of


def write(logs: Iterable[Log], place: Path, _uri: str | None) -> str:
    """Write the runs into a folder. Raises ResultsError if TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise missing("tensorboard", "tensorboard") from error
    count = 0
    for log in logs:
        folder = place / _plain(log.study) / Path(*map(_plain, filter(None, [log.group]))) / _plain(log.name)
        with SummaryWriter(str(folder)) as writer:
            lines = "\n".join(f"    {key}: {value}" for key, value in log.parameters.items())
            writer.add_text("run", lines, 0, walltime=0.0)
            for time_s, number, values in log.points():
                for name, value in values.items():
                    _add(writer, name, value, number, time_s)
                    _add(writer, f"{BY_TIME}{name}", value, step_of(time_s), time_s)
            end = float(log.rows["time_s"].iloc[-1])
            for name, value in log.totals.items():
                _add(writer, f"total/{name}", value, 0, end)
        count += 1
    return f"{count} runs in {place}; see them with: tensorboard --logdir {quote(str(place))}"


def _add(writer: object, name: str, value: float, step: int, time_s: float) -> None:
    writer.add_scalar(name, value, step, walltime=time_s, new_style=True, double_precision=True)  # type: ignore[attr-defined]


def _plain(text: str) -> str:
    """Reduce a text to characters that suit a folder's name everywhere."""
    return re.sub(r"[^A-Za-z0-9_.+=-]+", "-", text).strip("-.") or "run"
