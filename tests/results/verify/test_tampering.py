"""Whatever is done to results after they were written is found out, and nothing is found where nothing was done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from swept import run_sweep
from tiny_worlds import raw, tiny
from toy_runs import list_runs

from vflsim.errors import ResultsError
from vflsim.protocols.vafl import Asynchronous
from vflsim.results import verify_folder
from vflsim.results.store.write import facts_of
from vflsim.studies.study import run_study
from vflsim.world.node import Node

Tamper = Callable[[Path], object]
RUN, OTHER_SEED, OTHER = "noting/seed-0", "noting/seed-1", "synchronous/seed-0"
TABLES = ("metrics", "rounds", "events", "notes")
FILES = (*(f"{table}.parquet" for table in TABLES), "weights.safetensors", "run.json")
PAGES = ("scenario.yaml", "summary.parquet", "summary.md", "closed_forms.parquet", "manifest.json")


class Noting(Asynchronous):
    """Asynchronous, with a table of its own."""

    kind: Literal["noting"] = "noting"  # type: ignore[assignment]

    async def server(self, node: Node) -> None:
        for number in range(3):
            node.record("notes", number=number, half=number / 2)
        await super().server(node)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tampering") / "study"
    scenario = tiny(
        "synchronous", seeds=[0, 1], stop={"rounds": 6}, evaluate={"every": "2 rounds"}, partition__clients=3
    )
    assert run_study(scenario.with_protocols({"noting": Noting()}), folder).failures == {}
    return folder


@pytest.fixture
def study(untouched: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untouched, tmp_path / "study"))


# --- what can be done -------------------------------------------------------------------------------------------------


def on(name: str, change: Callable[[Path], object]) -> Tamper:
    return lambda folder: change(folder / name)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flipped(place: float) -> Callable[[Path], object]:
    """One bit, so far into the file."""

    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(place * (len(content) - 1))] ^= 1
        path.write_bytes(content)

    return flip


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def copied_from(name: str) -> Tamper:
    """The file of the same name from another run of the study."""
    return lambda path: shutil.copy(path.parents[2] / name / path.name, path)


def exchanged(one: str, other: str) -> Tamper:
    def exchange(folder: Path) -> None:
        (folder / one).rename(folder / "aside")
        (folder / other).rename(folder / one)
        (folder / "aside").rename(folder / other)

    return exchange


def rewritten(change: Callable[[pa.Table], pa.Table], **options: Any) -> Callable[[Path], object]:
    def rewrite(path: Path) -> None:
        table = change(pq.read_table(path, partitioning=None))
        pq.write_table(table, path, **{"compression": "zstd", "version": "2.6", **options})

    return rewrite


def without_row(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table[:1], table[2:]])


def row_twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table[-1:]])


def reversed_(table: pa.Table) -> pa.Table:
    return table.take(list(range(len(table)))[::-1])


def last_number_changed(table: pa.Table) -> pa.Table:
    """The last column of numbers, one of its values a little larger."""
    name = [
        field.name for field in table.schema if pa.types.is_floating(field.type) or pa.types.is_integer(field.type)
    ][-1]
    values = table[name].to_pylist()
    values[1] = 0 if values[1] is None or values[1] != values[1] else values[1] + 1
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))


def column_renamed(table: pa.Table) -> pa.Table:
    return table.rename_columns([f"{table.column_names[0]}_", *table.column_names[1:]])


def columns_exchanged(table: pa.Table) -> pa.Table:
    return table.rename_columns([*table.column_names[1::-1], *table.column_names[2:]])


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def edit(path: Path) -> None:
        page = json.loads(path.read_text())
        change(page)
        path.write_text(json.dumps(page, indent=2) + "\n")

    return edit


def replaced(old: str, new: str) -> Callable[[Path], object]:
    def replace(path: Path) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return replace


def accuracy(value: float) -> Callable[[Path], object]:
    """Another accuracy at the end."""

    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("test_accuracy")
        return table.set_column(at, table.schema.field(at), pa.array([*table[at].to_pylist()[:-1], value]))

    return rewritten(change)


def and_its_page(change: Callable[[Path], object]) -> Tamper:
    """A change of a run's metrics, with the digest on its page."""

    def both(folder: Path) -> None:
        path = folder / RUN / "metrics.parquet"
        change(path)
        edited(lambda page: page["files"].update({path.name: facts_of(path).model_dump()}))(folder / RUN / "run.json")

    return both


def as_another_seed(folder: Path) -> None:
    shutil.copytree(folder / RUN, folder / "noting/seed-7")
    edited(lambda page: page.update(seed=7))(folder / "noting/seed-7/run.json")


def from_another_study(folder: Path) -> None:
    """A run as sound as the one that it replaces, of as many rounds."""
    other = tiny("synchronous", seeds=[0], stop={"rounds": 6}, partition__clients=3, training__batch=30)
    run_study(other, folder.parent / "other")
    shutil.rmtree(folder / OTHER)
    shutil.copytree(folder.parent / "other/synchronous/seed-0", folder / OTHER)


def everything(folder: Path) -> None:
    for place in (RUN, OTHER_SEED, OTHER, "synchronous/seed-1"):
        shutil.rmtree(folder / place)


BYTES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "cut": cut,
    "one bit at the start": flipped(0),
    "one bit in the middle": flipped(0.5),
    "one bit near the end": flipped(0.9),
    "longer": longer,
}
CONTENT: dict[str, Callable[[Path], object]] = {
    "a row deleted": rewritten(without_row),
    "a row twice": rewritten(row_twice),
    "reordered": rewritten(reversed_),
    "a value changed": rewritten(last_number_changed),
    "a column left out": rewritten(lambda table: table.drop_columns(table.column_names[:1])),
    "a column renamed": rewritten(column_renamed),
    "columns exchanged": rewritten(columns_exchanged),
    "a column more": rewritten(lambda table: table.append_column("more", pa.array([0] * len(table)))),
    "no rows": rewritten(lambda table: table[:0]),
    "the same values, packed otherwise": rewritten(lambda table: table, compression="gzip"),
    "of another seed": copied_from(OTHER_SEED),
}
PAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "another reason to stop": lambda page: page.update(stop_reason="target"),
    "another wall clock": lambda page: page.update(wall_clock_s=page["wall_clock_s"] / 2),
    "other counts": lambda page: page["counts"].update(rounds=7),
    "fewer participants": lambda page: page["participants"].pop(),
    "another version": lambda page: page["versions"].update(torch="9.9"),
    "failed": lambda page: page.update(status="failed", error="boom"),
    "not reproducible": lambda page: page.update(reproducible=False),
    "another staleness bound": lambda page: page.update(max_staleness=9, staleness_bounds="row_age"),
    "digests removed": lambda page: page.pop("files"),
    "a digest changed": lambda page: page["files"]["events.parquet"].update(sha256="0" * 64),
    "a number of rows changed": lambda page: page["files"]["events.parquet"].update(rows=1),
    "a file not listed": lambda page: page["files"].pop("rounds.parquet"),
}
STUDY: dict[str, Tamper] = {
    "a run removed": lambda folder: shutil.rmtree(folder / RUN),
    "a protocol removed": lambda folder: shutil.rmtree(folder / "noting"),
    "all runs removed": everything,
    "a run's files removed": lambda folder: [path.unlink() for path in (folder / RUN).iterdir()],
    "two seeds exchanged": exchanged(RUN, OTHER_SEED),
    "two seeds exchanged, their pages left": lambda folder: [
        exchanged(f"{RUN}/{name}", f"{OTHER_SEED}/{name}")(folder) for name in FILES if name != "run.json"
    ],
    "two protocols exchanged": exchanged("noting", "synchronous"),
    "one seed's run as the other's": lambda folder: [
        shutil.copy(folder / RUN / name, folder / OTHER_SEED / name) for name in FILES if name != "run.json"
    ],
    "a run more": as_another_seed,
    "a run of another study": from_another_study,
    "a table more": lambda folder: shutil.copy(folder / RUN / "rounds.parquet", folder / RUN / "more.parquet"),
    "a table for a run without": lambda folder: shutil.copy(folder / RUN / "notes.parquet", folder / OTHER),
    "a folder in a run": lambda folder: (folder / RUN / "more").mkdir(),
    "a run renamed": lambda folder: (folder / RUN).rename(folder / "noting/seed-00"),
    "a better accuracy": on(f"{RUN}/metrics.parquet", accuracy(0.999)),
    "a better accuracy, with its digest": and_its_page(accuracy(0.999)),
    "metrics of another run, with their digest": and_its_page(copied_from(OTHER_SEED)),
    "weights of another protocol": on(f"{RUN}/weights.safetensors", copied_from(OTHER)),
    "events of another protocol": on(f"{RUN}/events.parquet", copied_from(OTHER)),
    "a seed less": on("scenario.yaml", replaced("seeds: [0, 1]", "seeds: [0]")),
    "a seed more": on("scenario.yaml", replaced("seeds: [0, 1]", "seeds: [0, 1, 2]")),
    "another batch": on("scenario.yaml", replaced("batch: 20", "batch: 30")),
    "another name": on("scenario.yaml", replaced("name: tiny", "name: huge")),
    "a comment": on("scenario.yaml", lambda path: path.write_text(path.read_text() + "# checked\n")),
    "a better summary": on("summary.parquet", rewritten(lambda table: table.set_column(
        table.schema.get_field_index("mean"), "mean", pc.multiply(table["mean"], 2.0)
    ))),
    "a row of the summary deleted": on("summary.parquet", rewritten(without_row)),
    "a better page": on("summary.md", replaced("synchronous", "SYNCHRONOUS")),
    "another closed form": on("closed_forms.parquet", rewritten(last_number_changed)),
    "a run not listed": on("manifest.json", edited(lambda page: page["files"].pop(f"{RUN}/run.json"))),
    "a page not listed": on("manifest.json", edited(lambda page: page["files"].pop("summary.md"))),
    "another digest listed": on(
        "manifest.json", edited(lambda page: page["files"][f"{RUN}/run.json"].update(sha256="f" * 64))
    ),
    "a file listed that is not there": on(
        "manifest.json", edited(lambda page: page["files"].update({"more": {"sha256": "f" * 64, "rows": None}}))
    ),
    "nothing listed": on("manifest.json", edited(lambda page: page.update(files={}))),
    "a list of something else": on("manifest.json", lambda path: path.write_text("[1, 2]")),
}  # fmt: skip
TAMPERINGS: dict[str, Tamper] = {
    **{f"{name}: {what}": on(f"{RUN}/{name}", change) for name in FILES for what, change in BYTES.items()},
    **{f"{table}: {what}": on(f"{RUN}/{table}.parquet", c) for table in TABLES for what, c in CONTENT.items()},
    **{f"run.json: {what}": on(f"{RUN}/run.json", edited(change)) for what, change in PAGE.items()},
    **{f"{name}: {what}": on(name, change) for name in PAGES for what, change in BYTES.items()},
    **STUDY,
}
SAME = {"notes: of another seed", "manifest.json: longer"}
"""What leaves every byte as it was, and a blank line at the end of the list that is held against the others."""


@pytest.fixture
def no_invariants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests have to find everything by themselves (and tables need not be looked through, which takes its time)."""
    for rules in ("problems_of", "summary_problems", "curve_problems"):
        monkeypatch.setattr(f"vflsim.results.verify.{rules}", lambda *_: iter(()))


def caught(folder: Path) -> list[str]:
    try:
        return verify_folder(folder)
    except ResultsError as error:
        return [str(error)]


# --- what is found out ------------------------------------------------------------------------------------------------


def test_there_are_enough_ways_to_tamper() -> None:
    assert len(TAMPERINGS.keys() - SAME) > 150


@pytest.mark.sampled(60)
@pytest.mark.parametrize("name", [name for name in TAMPERINGS if name not in SAME])
@pytest.mark.usefixtures("no_invariants")
def test_tampering_is_caught(name: str, study: Path) -> None:
    TAMPERINGS[name](study)
    assert caught(study) != []


def test_what_has_changed_is_named(study: Path) -> None:
    accuracy(0.999)(study / RUN / "metrics.parquet")
    rewritten(without_row)(study / RUN / "rounds.parquet")
    (study / OTHER / "weights.safetensors").unlink()
    shutil.rmtree(study / OTHER_SEED)
    found = verify_folder(study)
    changed = "has changed since it was written (another SHA-256)"
    assert f"{RUN}: metrics.parquet {changed}" in found
    assert f"{RUN}: rounds.parquet {changed}: 5 rows instead of 6" in found
    assert f"{OTHER}: weights.safetensors is missing" in found
    assert f"{OTHER_SEED} is missing: a run of this scenario" in found


def test_invariants_stand_behind_digests_that_were_changed_too(study: Path) -> None:
    metrics = study / RUN / "metrics.parquet"
    at = pq.read_schema(metrics).get_field_index("bytes_up")
    more = rewritten(lambda table: table.set_column(at, table.schema.field(at), pc.add(table["bytes_up"], 1)))
    and_its_page(more)(study)
    list_runs(study)
    found = verify_folder(study)
    assert found
    assert all("bytes_up is" in problem for problem in found if problem.startswith(RUN))


def test_many_runs_that_are_missing_are_counted_not_listed(study: Path) -> None:
    replaced("seeds: [0, 1]", f"seeds: {[*range(20)]}")(study / "scenario.yaml")
    found = [problem for problem in verify_folder(study) if "seed-" in problem]
    assert len(found) == 8
    assert "… and 28 more like these" in verify_folder(study)


# --- what is sound ----------------------------------------------------------------------------------------------------


def test_an_untouched_study_is_sound(untouched: Path) -> None:
    assert verify_folder(untouched) == []


def test_figures_and_traces_beside_results_are_no_tampering(study: Path) -> None:
    for name in ("time.png", "trace.json", ".lock"):
        (study / name).write_text("drawn")
    assert verify_folder(study) == []


def test_results_without_any_digest_are_not_called_sound(study: Path) -> None:
    (study / "manifest.json").unlink()
    edited(lambda page: page.pop("files"))(study / RUN / "run.json")
    missing, *foreign = verify_folder(study)
    assert missing == "manifest.json is missing, so that an exchange of whole runs need not show"
    assert foreign == [
        f"{RUN}: {name} is none of the files that were written here" for name in sorted(FILES) if name != "run.json"
    ]


# --- sweeps -----------------------------------------------------------------------------------------------------------

SWEPT: dict[str, Tamper] = {
    "a value removed": lambda folder: shutil.rmtree(folder / "batch-10"),
    "values exchanged": exchanged("batch-10", "batch-20"),
    "a run of a value removed": lambda folder: shutil.rmtree(folder / "batch-10/synchronous"),
    "a table of a value changed": on("batch-10/synchronous/seed-0/metrics.parquet", accuracy(0.999)),
    "a scenario of a value removed": on("batch-10/scenario.yaml", Path.unlink),
    "values exchanged on the page": on(
        "sweep.json", edited(lambda page: page["points"][0].update(folder="batch-20") or page["points"].pop())
    ),
    "digests removed": on("sweep.json", edited(lambda page: page["points"][0].pop("scenario_sha256"))),
    "not finished": on("sweep.json", edited(lambda page: page["points"][0].update(finished=False))),
    "a page of something else": on("sweep.json", lambda path: path.write_text("{}")),
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tampering") / "sweep"
    run_sweep(raw(stop={"rounds": 4}), "training.batch", [10, 20], out=folder)
    return folder


def test_an_untouched_sweep_is_sound(swept: Path) -> None:
    assert verify_folder(swept) == []


@pytest.mark.parametrize("name", SWEPT)
@pytest.mark.usefixtures("no_invariants")
def test_tampering_with_a_sweep_is_caught(name: str, swept: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(swept, tmp_path / "sweep"))
    SWEPT[name](folder)
    assert caught(folder) != []
