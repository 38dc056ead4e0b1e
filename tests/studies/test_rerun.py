"""Runs that are computed again: sound ones come out again, changed and unrepeatable ones are named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import Ended
from growing import OFTEN, said
from protocols_by_kind import KINDS, MODELS
from safetensors.torch import load_file, save_file
from tiny_worlds import raw

import vflsim as front
from vflsim.results import Results, write_summary
from vflsim.results.store.folder import SEED, run_folder
from vflsim.results.store.write import facts_of
from vflsim.results.verify import verify_folder
from vflsim.scenario import load
from vflsim.studies.plan import axes_of, planned
from vflsim.studies.rerun import Repeated, Sample, rerun
from vflsim.studies.study import run_study
from vflsim.studies.sweep import run_sweep
from vflsim.vocabulary.execution_options import RunOptions

pytestmark = pytest.mark.usefixtures("by_events")
EVERY = {"evaluate": {"every": "2 rounds"}}
SAMPLES = {"whole": Sample(), "first rounds": Sample(rounds=5), "from checkpoints": Sample(from_checkpoint=True)}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory, by_events: None) -> Path:
    folder = tmp_path_factory.mktemp("rerun") / "study"
    assert run_study(said(**EVERY), folder, options=OFTEN).failures == {}
    return folder


@pytest.fixture
def study(untouched: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untouched, tmp_path / "study"))


def problems_of(folder: Path, sample: Sample = SAMPLES["whole"]) -> list[str]:
    return [f"{each.name}: {problem}" for each in rerun(folder, sample, trust=True) for problem in each.problems]


def everything_in(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def sealed(folder: Path, run: str) -> None:
    """Rewrite the digests of a run and of its study, and the summary, as someone who hides a change would."""
    page = folder / run / "run.json"
    info = json.loads(page.read_text())
    info["files"] = {name: facts_of(folder / run / name).model_dump() for name in info["files"]}
    page.write_text(json.dumps(info, indent=2) + "\n")
    summaries = [path.name for path in write_summary(Results.open(folder))]
    manifest = folder / "manifest.json"
    listed = json.loads(manifest.read_text())
    listed["files"] |= {name: facts_of(folder / name).model_dump() for name in (f"{run}/run.json", *summaries)}
    manifest.write_text(json.dumps(listed, indent=2) + "\n")


def another_metric(folder: Path, row: int = -1, run: str = "wait/seed-0") -> None:
    """A better accuracy in a row of the metrics, with digests that fit."""
    path = folder / run / "metrics.parquet"
    table = pq.read_table(path, partitioning=None)
    values = table["test_accuracy"].to_pylist()
    values[row] += 0.125
    at = table.schema.get_field_index("test_accuracy")
    path.unlink()  # points of a sweep share the file
    pq.write_table(table.set_column(at, table.schema.field(at), pa.array(values)), path)
    sealed(folder, run)


# --- what comes out again ---------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_sound_runs_come_out_again_and_nothing_is_written_to_the_results(study: Path, sample: Sample) -> None:
    before = everything_in(study)
    found = [*rerun(study, sample)]
    assert [each.problems for each in found] == [()] * 4
    assert {each.name for each in found} == {f"{name}/seed-{seed}" for name in ("wait", "async") for seed in (0, 1)}
    assert everything_in(study) == before
    assert [path.name for path in study.parent.iterdir()] == ["study"]


def test_a_sample_from_checkpoints_resumes_and_says_where(study: Path) -> None:
    assert all("resumed from" in each.what for each in rerun(study, Sample(from_checkpoint=True)))
    shutil.rmtree(study / "wait/.seed-1.checkpoint")
    whats = {each.name: each.what for each in rerun(study, Sample(from_checkpoint=True))}
    assert whats["wait/seed-1"] == "the whole run"


def test_a_sample_of_protocols_and_seeds_computes_no_other_run(study: Path) -> None:
    assert [each.name for each in rerun(study, Sample(protocols=["async"], seeds=[1]))] == ["async/seed-1"]


def test_a_sample_of_rounds_names_the_rows_that_it_has_compared(study: Path) -> None:
    (found,) = rerun(study, Sample(["wait"], [0], rounds=5))
    assert "first 5 rounds (rows: 3 of metrics, 5 of rounds, " in found.what


FAMILIES = (
    "t-synchronous-cancel",
    "asynchronous",
    "fedvs",
    "vimadmm",
    "fedbcd-sequential",
    "c_vfl",
    "ef_vfl",
    "agg_vfl",
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", FAMILIES)
def test_the_first_rounds_of_every_protocol_begin_a_longer_run(kind: str, tmp_path: Path) -> None:
    model = {"models__client": MODELS["unbiased"]} if kind.startswith("fedvs") else {}
    scenario = load(raw({kind: KINDS[kind]}, stop={"rounds": 5}, **EVERY, **model))
    assert run_study(scenario, tmp_path / "out").failures == {}
    (found,) = rerun(tmp_path / "out", Sample(rounds=3))
    assert (found.problems, found.what[:14]) == ((), "its first 3 ro")


@pytest.mark.parametrize("path", ["event", "vectorised"])
def test_timing_alone_comes_out_again_on_either_path(path: Any, tmp_path: Path) -> None:
    run_study(said("wait", record="rounds"), tmp_path / "out", timing_only=True, path=path)
    assert problems_of(tmp_path / "out", Sample(rounds=5)) == []
    assert problems_of(tmp_path / "out") == []


@pytest.mark.parametrize("options", [RunOptions.of(eager=True), RunOptions.of(threads=2)], ids=["eager", "two threads"])
def test_runs_are_computed_as_they_were(options: RunOptions, tmp_path: Path) -> None:
    run_study(said("wait", seeds=[0]), tmp_path / "out", options=options)
    assert problems_of(tmp_path / "out") == []


def test_a_diverged_run_diverges_again(tmp_path: Path) -> None:
    scenario = said("wait", seeds=[0], training__server_optimizer={"kind": "sgd", "lr": 1e30})
    assert len(run_study(scenario, tmp_path / "out").failures) == 1
    assert problems_of(tmp_path / "out") == []
    assert problems_of(tmp_path / "out", Sample(rounds=1)) == []


def test_runs_that_points_of_a_sweep_share_are_computed_once(tmp_path: Path) -> None:
    source = raw({"wait": {"kind": "synchronous"}, "t-sync": {"kind": "t_synchronous", "t": 1}}, stop={"rounds": 4})
    plan = planned(source, axes_of(source, {"protocols.t-sync.t": [1, 2]}))
    run_sweep(plan, tmp_path / "sweep")
    ended: list[Repeated] = [*rerun(tmp_path / "sweep")]
    assert sorted(each.name for each in ended) == sorted(
        f"{point.folder}/{name}/seed-0" for point in plan.points for name in ("wait", "t-sync")
    )
    assert [each.problems for each in ended] == [()] * 4
    another_metric(tmp_path / "sweep" / plan.points[1].folder)
    assert [each.split(" is ")[0] for each in problems_of(tmp_path / "sweep")] == [
        f"{plan.points[1].folder}/wait/seed-0: metrics, row 1 (time_s {time_of(tmp_path, plan)}): test_accuracy"
    ]


def time_of(folder: Path, plan: Any) -> float:
    path = run_folder(folder / "sweep" / plan.points[1].folder, "wait", 0) / "metrics.parquet"
    times: list[float] = pq.read_table(path, partitioning=None)["time_s"].to_pylist()
    return times[1]


# --- what does not ----------------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_a_metric_with_rewritten_digests_is_found_by_its_row_and_column(study: Path, sample: Sample) -> None:
    another_metric(study, row=1)
    assert verify_folder(study) == []
    (problem,) = problems_of(study, sample)
    assert problem.startswith("wait/seed-0: metrics, row 1 (time_s ")
    assert ": test_accuracy is " in problem


def test_a_weight_with_rewritten_digests_is_found_by_its_place(study: Path) -> None:
    path = study / "async/seed-1/weights.safetensors"
    weights = load_file(path)
    name = next(key for key in weights if key.startswith("client-2") and weights[key].ndim == 2)
    weights[name][1, 2] = 0.25
    save_file(weights, path, {SEED: "1"})
    sealed(study, "async/seed-1")
    assert verify_folder(study) == []
    (problem,) = problems_of(study)
    assert problem.startswith(f"async/seed-1: weights: {name}[1, 2] is 0.25, computed again ")


def test_another_status_is_found(study: Path) -> None:
    page = study / "wait/seed-0/run.json"
    info = json.loads(page.read_text())
    page.write_text(json.dumps(info | {"status": "diverged", "error": "the loss became inf"}))
    assert "wait/seed-0: run.json: status is diverged, computed again finished" in problems_of(study)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("model", ["Remembering", "Shaken"])
@pytest.mark.parametrize("sample", [SAMPLES["whole"], SAMPLES["from checkpoints"]], ids=["whole", "from checkpoints"])
def test_a_model_that_does_not_repeat_itself_is_found(
    model: str, sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflsim.studies.study.refuse_broken", lambda *_: None)  # it finds these two at once
    own = {"kind": "module", "path": f"own_rerun_modules:{model}", "embedding": 6}
    run_study(said("wait", seeds=[0], models__client=own, **EVERY), tmp_path / "out", options=OFTEN)
    assert verify_folder(tmp_path / "out") == []
    found = problems_of(tmp_path / "out", sample)
    assert any(each.startswith("wait/seed-0: metrics, row ") for each in found)
    assert any(each.startswith("wait/seed-0: weights: ") for each in found)


def test_modules_that_results_name_are_imported_with_trust_alone(tmp_path: Path, vflsim: Callable[..., Ended]) -> None:
    own = {"kind": "module", "path": "normed_module:Normed", "embedding": 6}
    run_study(said("wait", seeds=[0], models__client=own, **EVERY), tmp_path / "out", options=OFTEN)
    ended = vflsim("verify", tmp_path / "out", "--rerun")
    assert ended.status == 2
    assert "names modules, whose code would run: normed_module" in ended.err
    assert "--trust" in ended.err
    assert vflsim("verify", tmp_path / "out", "--rerun", "--trust").status == 0
    assert front.verify(tmp_path / "out", rerun=True, trust=True) == []


def test_other_versions_are_named_beside_a_difference(study: Path) -> None:
    another_metric(study)
    page = study / "wait/seed-0/run.json"
    info = json.loads(page.read_text())
    info["versions"]["torch"] = "1.0"
    page.write_text(json.dumps(info))
    problems = problems_of(study)
    assert len(problems) == 2
    assert problems[1].startswith("wait/seed-0: bytes can differ, since it was computed with torch 1.0 (now ")


# --- what cannot be told ----------------------------------------------------------------------------------------------


def test_a_run_that_the_clock_ends_is_left_out(tmp_path: Path) -> None:
    run_study(said("wait", seeds=[0], stop={"rounds": 4, "wall_clock": "1 h"}), tmp_path / "out")
    (found,) = rerun(tmp_path / "out")
    assert (found.problems, found.left_out) == ((), "its end depends on the clock (run.json: reproducible is false)")
    with pytest.warns(UserWarning, match="wait/seed-0 was not computed again: its end depends on the clock"):
        assert front.verify(tmp_path / "out", rerun=True) == []


def test_a_run_whose_data_have_changed_is_not_computed_again(tmp_path: Path) -> None:
    rows = "".join(f"{n % 7},{n % 5},{n % 3},{n % 2}\n" for n in range(60))
    (tmp_path / "toy.csv").write_text("a,b,c,label\n" + rows)
    data = {"file": str(tmp_path / "toy.csv"), "label": "label", "task": "binary"}
    run_study(said("wait", seeds=[0], data=data, partition__clients=3), tmp_path / "out")
    assert problems_of(tmp_path / "out") == []
    (tmp_path / "toy.csv").write_text("a,b,c,label\n" + rows.replace("6,", "5,"))
    assert problems_of(tmp_path / "out") == ["wait/seed-0: was not computed again: toy.csv has changed since"]


def test_a_checkpoint_of_other_versions_is_named(study: Path) -> None:
    (page,) = (study / "wait/.seed-0.checkpoint").glob("*.json")
    stored = json.loads(page.read_text())
    stored["content"]["fingerprint"]["torch"] = "1.0"
    from vflsim.simulation.checkpoints.files import _digest_of

    page.write_text(json.dumps({"content": stored["content"], "digest": _digest_of(stored["content"])}))
    (problem,) = problems_of(study, Sample(from_checkpoint=True))
    assert problem.startswith(
        "wait/seed-0: was not computed again: its checkpoint belongs to a run with other settings"
    )
    assert "torch: 1.0 → " in problem


def test_noise_of_a_whole_run_is_not_that_of_its_beginning(tmp_path: Path) -> None:
    noise = {"kind": "gaussian", "clip": 1, "epsilon": 8, "per": "run", "delta": 1e-5}
    scenario = load(raw({"wait": {"kind": "synchronous", "mechanism": noise}}, stop={"rounds": 6}))
    run_study(scenario, tmp_path / "out")
    assert "leave --rounds out" in problems_of(tmp_path / "out", Sample(rounds=3))[0]
    assert problems_of(tmp_path / "out") == []


# --- from outside -----------------------------------------------------------------------------------------------------


def test_the_command_names_what_came_out_again_and_ends_as_verify_does(study: Path, vflsim: Callable[..., Any]) -> None:
    ended = vflsim("verify", study, "--rerun", "--protocol", "wait")
    assert (ended.status, ended.err) == (0, "")
    assert "wait/seed-1 comes out again: the whole run\n2 runs computed again\n" in ended.out
    another_metric(study)
    ended = vflsim("verify", study, "--rerun", "--protocol", "wait", "--seed", 0)
    assert ended.status == 2
    assert "wait/seed-0: metrics, row " in ended.out
    assert "1 problem, listed above" in ended.err


@pytest.mark.parametrize("option", [("--rounds", 3), ("--from-checkpoint",), ("--protocol", "wait"), ("--seed", 0)])
def test_a_sample_without_rerun_is_refused(option: tuple[object, ...], study: Path, vflsim: Callable[..., Any]) -> None:
    ended = vflsim("verify", study, *option)
    assert ended.status == 2
    assert "add --rerun" in ended.err


@pytest.mark.parametrize(("option", "known"), [(("--protocol", "wiat"), "wait"), (("--seed", 5), "0, 1")])
def test_a_protocol_or_seed_that_is_not_there_is_refused(
    option: tuple[object, ...], known: str, study: Path, vflsim: Callable[..., Any]
) -> None:
    ended = vflsim("verify", study, "--rerun", *option)
    assert ended.status == 2
    assert known in ended.err


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_two_workers_compute_the_same(study: Path) -> None:
    another_metric(study)
    assert len(front.verify(study, rerun=True, protocols=["wait"], workers=2)) == 1
