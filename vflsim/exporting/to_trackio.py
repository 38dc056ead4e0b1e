"""Write runs into a local store of Trackio: a database in a folder. Steps are rounds; ``time_s`` is a series, too.

Series under ``by_time/`` have virtual milliseconds as steps.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from vflsim.exporting.logs import BY_TIME, Log, missing, step_of


def write(logs: Iterable[Log], place: Path, _uri: str | None) -> str:
    """Write the runs into a folder. Raises ResultsError if Trackio is not installed."""
    place.mkdir(parents=True, exist_ok=True)
    os.environ["TRACKIO_DIR"] = str(place.resolve())  # read when trackio is imported
    try:
        import trackio
    except ImportError as error:
        raise missing("trackio", "trackio") from error
    count = 0
    for log in logs:
        trackio.init(
            project=log.study,
            name=log.name,
            group=log.group or None,
            config=log.parameters,
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        points = [*log.points()]
        for time_s, number, values in points:
            trackio.log({"time_s": time_s, **values}, step=number)
        for time_s, number, values in points:
            by_time = {f"{BY_TIME}{name}": value for name, value in {"round": number, **values}.items()}
            trackio.log(by_time, step=step_of(time_s))
        if log.totals:
            trackio.log({f"total/{name}": value for name, value in log.totals.items()}, step=points[-1][1])
        trackio.finish()
        count += 1
    return f"{count} runs in {place}; see them with: TRACKIO_DIR={quote(str(place))} trackio show"
