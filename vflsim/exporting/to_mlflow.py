"""Write runs into an MLflow store: a database in a folder, or a server.

Every series is there twice: by rounds, and under ``by_time/`` by virtual milliseconds. Timestamps are the time of the
export plus virtual time, so that MLflow's axis “relative time” shows virtual time, too.
"""

import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from shlex import quote
from typing import Any

from vflsim.exporting.logs import BY_TIME, Log, missing, step_of

_METRICS, _PARAMETERS = 1000, 100
"""The most of each that one call takes."""
_LONG = 500
"""Characters of a parameter that old and new versions store."""


def write(logs: Iterable[Log], place: Path, uri: str | None) -> str:
    """Write the runs into ``mlflow.db`` in a folder, or to the server at ``uri``; each study is an experiment.

    Raises ResultsError if MLflow, or what its local store needs, is not installed.
    """
    try:
        from mlflow import MlflowClient

        if uri is None:
            import alembic  # noqa: F401  mlflow-skinny has no database of its own
            import sqlalchemy  # noqa: F401
    except ImportError as error:
        raise missing("mlflow", "mlflow") from error
    if uri is None:
        place.mkdir(parents=True, exist_ok=True)
    store = uri or f"sqlite:///{(place / 'mlflow.db').resolve()}"
    client, count = MlflowClient(tracking_uri=store), 0
    for log in logs:
        _write(client, _experiment(client, log.study, None if uri else place), log)
        count += 1
    return f"{count} runs in {store}; see them with: mlflow ui --backend-store-uri {quote(store)}"


def _experiment(client: Any, name: str, place: Path | None) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        return str(experiment.experiment_id)
    artifacts = None if place is None else (place.resolve() / "artifacts").as_uri()
    return str(client.create_experiment(name, artifact_location=artifacts))


def _write(client: Any, experiment: str, log: Log) -> None:
    from mlflow.entities import Metric, Param, RunTag

    begun = round(time.time() * 1000)
    tags = {"vflsim.group": log.group} if log.group else {}
    made = client.create_run(experiment, start_time=begun, tags=tags, run_name=log.name).info.run_id
    parameters = [Param(_key(key), str(value)[:_LONG]) for key, value in log.parameters.items()]
    metrics = [Metric(_key(name), value, begun + step_of(time_s), step) for name, value, time_s, step in _metrics(log)]
    for first in range(0, len(parameters), _PARAMETERS):
        client.log_batch(made, params=parameters[first : first + _PARAMETERS])
    for first in range(0, len(metrics), _METRICS):
        client.log_batch(made, metrics=metrics[first : first + _METRICS])
    client.log_batch(made, tags=[RunTag("vflsim.scenario", log.study)])
    end = begun + step_of(float(log.rows["time_s"].iloc[-1]))
    client.set_terminated(made, "FINISHED" if log.finished else "FAILED", end)


def _metrics(log: Log) -> Iterator[tuple[str, float, float, int]]:
    """Yield name, value, virtual time and step of all that is logged."""
    for time_s, number, values in log.points():
        for name, value in values.items():
            yield name, value, time_s, number
            yield f"{BY_TIME}{name}", value, time_s, step_of(time_s)
    end = float(log.rows["time_s"].iloc[-1])
    for name, value in log.totals.items():
        yield f"total/{name}", value, end, 0


def _key(name: str) -> str:
    """Reduce a name to characters that MLflow's keys may have."""
    return re.sub(r"[^\w\-./ ]+", "-", name)
