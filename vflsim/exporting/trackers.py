"""What writes runs for each tracker: their stores, their names for things, and what their time axes show."""

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Literal, TypeAlias

import pandas as pd

from vflsim.errors import ResultsError
from vflsim.finished import Results, StoredRun, Sweep, open_folder, outcomes
from vflsim.scenario import flow

AXES = ("time_s", "round")
"""The columns of the metrics that series are drawn against: virtual time and server steps."""


BY_TIME = "by_time/"
"""How the series begin whose steps are virtual milliseconds."""


STEP_S = 1e-3
"""Virtual seconds of such a step: trackers count steps in whole numbers."""


@dataclass(frozen=True)
class Log:
    """One run for a tracker.

    ``study`` is the scenario's name, ``group`` the point of a sweep (else empty), ``name`` is unique in the study.
    ``rows`` are the metrics in order, with the columns ``AXES`` first; cells may be NaN. ``totals`` has costs to the
    target that were paid, the mean round and the like, in SI units.
    """

    study: str
    group: str
    name: str
    parameters: dict[str, str | int | float]
    rows: pd.DataFrame
    totals: dict[str, float]
    finished: bool

    @property
    def series(self) -> list[str]:
        """The columns that are drawn."""
        return [name for name in self.rows.columns if name not in AXES]

    def points(self) -> Iterator[tuple[float, int, dict[str, float]]]:
        """Yield virtual time, round and the values of every evaluation; what was not measured is left out."""
        for row in self.rows.to_dict("records"):
            values = {name: float(row[name]) for name in self.series if math.isfinite(float(row[name]))}
            yield float(row["time_s"]), int(row["round"]), values


def step_of(time_s: float) -> int:
    """Return virtual time as a step: whole milliseconds."""
    return round(time_s / STEP_S)


def logs_of(folder: Path) -> Iterator[Log]:
    """Yield every run of a results folder, or of all finished points of a sweep. Raises ResultsError."""
    opened = open_folder(folder)
    if isinstance(opened, Results):
        yield from _logs(opened, {})
        return
    for position, results in enumerate(opened.results):
        yield from _logs(results, {axis.name: _plain(axis.values[position]) for axis in opened.axes}, opened)


def _plain(value: Any) -> str | int | float:
    return value if isinstance(value, int | float | str) else flow(value)


def _logs(results: Results, values: Mapping[str, str | int | float], sweep: Sweep | None = None) -> Iterator[Log]:
    group = ", ".join(f"{name} = {value}" for name, value in values.items())
    measured = outcomes(results)
    for run in results.runs:
        rows = run.frame("metrics").drop(columns=["protocol", "seed"])
        rows = rows[[*AXES, *(name for name in rows.columns if name not in AXES)]]
        yield Log(
            study=sweep.scenario if sweep is not None else results.name,
            group=group,
            name=", ".join(filter(None, [run.protocol, group, f"seed {run.seed}"])),
            parameters={**_parameters(results, run), **values},
            rows=rows,
            totals=_totals(measured[(measured["protocol"] == run.protocol) & (measured["seed"] == run.seed)]),
            finished=not run.failed,
        )


def _parameters(results: Results, run: StoredRun) -> dict[str, str | int | float]:
    """Return what a run was: protocol and its own settings, seed, how it ended, versions."""
    settings: Mapping[str, Any] = results.scenario["protocols"].get(run.protocol) or {}
    info = run.info
    parameters: dict[str, str | int | float] = {
        **{"scenario": results.name, "protocol": run.protocol, "seed": run.seed},
        **{f"protocol.{key}": _plain(value) for key, value in settings.items()},
        **{"status": info.status, "stop_reason": info.stop_reason or "", "error": info.error or ""},
        **{f"version.{name}": version for name, version in info.versions.items()},
    }
    return {key: value for key, value in parameters.items() if value != ""}


def _totals(outcomes_of_run: pd.DataFrame) -> dict[str, float]:
    """Return a run's numbers; with several targets, costs of the first one. Costs that were not paid are left out.

    A cost lies above the one with ``_lower`` behind its name, which the evaluation before tells.
    """
    target, censored = outcomes_of_run["target"], outcomes_of_run["censored"].astype(bool)
    shown = outcomes_of_run[(target.isna() | target.isin(target.dropna().unique()[:1])) & ~censored]
    costs = shown[shown["target"].notna()]
    pairs = [*zip(shown["measure"], shown["value"], strict=True)]
    pairs += zip(costs["measure"] + "_lower", costs["lower"], strict=True)
    return {str(name): float(value) for name, value in pairs if math.isfinite(float(value))}


TrackerName: TypeAlias = Literal["mlflow", "tensorboard", "wandb", "trackio"]


Writer: TypeAlias = Callable[[Iterable[Log], Path, str | None], str]
"""Writes runs to a store: a folder, or the address of a server. Returns where they are, and what shows them."""


_METRICS, _PARAMETERS = 1000, 100
"""The most of each that one call to MLflow takes."""


_LONG = 500
"""Characters of a parameter that old and new versions of MLflow store."""


def to_mlflow(logs: Iterable[Log], place: Path, uri: str | None) -> str:
    """Write the runs into ``mlflow.db`` in a folder, or to the server at ``uri``; each study is an experiment.

    Every series is there twice: by rounds, and under ``by_time/`` by virtual milliseconds. Timestamps are the
    time of the export plus virtual time, so that MLflow's axis “relative time” shows virtual time, too. Raises
    ResultsError if MLflow, or what its local store needs, is not installed.
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
        _write_to_mlflow(client, _mlflow_experiment(client, log.study, None if uri else place), log)
        count += 1
    return f"{count} runs in {store}; see them with: mlflow ui --backend-store-uri {quote(store)}"


def _mlflow_experiment(client: Any, name: str, place: Path | None) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        return str(experiment.experiment_id)
    artifacts = None if place is None else (place.resolve() / "artifacts").as_uri()
    return str(client.create_experiment(name, artifact_location=artifacts))


def _write_to_mlflow(client: Any, experiment: str, log: Log) -> None:
    from mlflow.entities import Metric, Param, RunTag

    begun = round(time.time() * 1000)
    tags = {"vflsim.group": log.group} if log.group else {}
    made = client.create_run(experiment, start_time=begun, tags=tags, run_name=log.name).info.run_id
    parameters = [Param(_mlflow_key(key), str(value)[:_LONG]) for key, value in log.parameters.items()]
    metrics = [
        Metric(_mlflow_key(name), value, begun + step_of(time_s), step)
        for name, value, time_s, step in _mlflow_metrics(log)
    ]
    for first in range(0, len(parameters), _PARAMETERS):
        client.log_batch(made, params=parameters[first : first + _PARAMETERS])
    for first in range(0, len(metrics), _METRICS):
        client.log_batch(made, metrics=metrics[first : first + _METRICS])
    client.log_batch(made, tags=[RunTag("vflsim.scenario", log.study)])
    end = begun + step_of(float(log.rows["time_s"].iloc[-1]))
    client.set_terminated(made, "FINISHED" if log.finished else "FAILED", end)


def _mlflow_metrics(log: Log) -> Iterator[tuple[str, float, float, int]]:
    """Yield name, value, virtual time and step of all that is logged."""
    for time_s, number, values in log.points():
        for name, value in values.items():
            yield name, value, time_s, number
            yield f"{BY_TIME}{name}", value, time_s, step_of(time_s)
    end = float(log.rows["time_s"].iloc[-1])
    for name, value in log.totals.items():
        yield f"total/{name}", value, end, 0


def _mlflow_key(name: str) -> str:
    """Reduce a name to characters that MLflow's keys may have."""
    return re.sub(r"[^\w\-./ ]+", "-", name)


def to_tensorboard(logs: Iterable[Log], place: Path, _uri: str | None) -> str:
    """Write event files, a folder for each run.

    Every series is there twice: by rounds, and under ``by_time/`` by virtual milliseconds. The wall time of an
    event is its virtual time in seconds, so that TensorBoard's axis “relative” shows virtual time, too. Values
    are of double precision. Raises ResultsError if TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise missing("tensorboard", "tensorboard") from error
    count = 0
    for log in logs:
        folder = place.joinpath(*map(_folder_name, filter(None, [log.study, log.group, log.name])))
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


def _folder_name(text: str) -> str:
    """Reduce a text to characters that suit a folder's name everywhere."""
    return re.sub(r"[^A-Za-z0-9_.+=-]+", "-", text).strip("-.") or "run"


def to_trackio(logs: Iterable[Log], place: Path, _uri: str | None) -> str:
    """Write the runs into a local store: a database in a folder. Steps are rounds; ``time_s`` is a series, too.

    Series under ``by_time/`` have virtual milliseconds as steps. Raises ResultsError if Trackio is not installed.
    """
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


def to_wandb(logs: Iterable[Log], place: Path, _uri: str | None) -> str:
    """Write the runs offline, to be sent by ``wandb sync``; at once where WANDB_MODE is ``online``.

    The step of a row is its number; the axis of all series is virtual time (``time_s``), and ``round`` is a
    series, too. Raises ResultsError if wandb is not installed.
    """
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


def missing(library: str, extra: str) -> ResultsError:
    """Return the error for a library that is not installed."""
    return ResultsError(
        f"{library} is not installed", f"--to {extra}", remedy=f"pip install 'vflsim[{extra}]', or {library} alone"
    )


TRACKERS: Mapping[TrackerName, Writer] = {
    "mlflow": to_mlflow,
    "tensorboard": to_tensorboard,
    "wandb": to_wandb,
    "trackio": to_trackio,
}
"""What writes for each tracker; it imports a library that vflsim does not need."""


def export(folder: Path, to: TrackerName, out: Path | None = None, uri: str | None = None) -> str:
    """Export every run of a results folder or of a sweep; return where they are, and how to look at them.

    ``out`` is the folder of the local store (default: ``<folder>-<to>`` beside the results), ``uri`` the address of an
    MLflow server instead. Raises ResultsError for results that cannot be read, a store of an earlier export by default,
    an address that the tracker does not take, and a library that is not installed.
    """
    if uri is not None and to != "mlflow":
        raise ResultsError(f"{to} takes no address", f"--uri {uri}", "with --to mlflow", "leave it out")
    if uri is not None and out is not None:
        raise ResultsError("two places", f"--out {out} --uri {uri}", "one of them")
    whole = folder.resolve()
    place = out or whole.with_name(f"{whole.name}-{to}")
    if out is None and uri is None and place.exists():
        what = "is there already, from an earlier export"
        raise ResultsError(what, str(place), remedy=f"remove it, or add to it with --out {place}")
    return TRACKERS[to](logs_of(folder), place, uri)
