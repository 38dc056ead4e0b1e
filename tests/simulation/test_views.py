"""What a run keeps of what its parties received about the recorded rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from coded_worlds import coded
from kept_runs import assert_interruptions_change_no_byte
from protocols_by_kind import KINDS
from tiny_worlds import EAGER, RANDOM_TIMING, coding_plan_of, data_of, events, learners, raw, run, same_weights, tiny

from vflsim.learning.batches import BatchSequence
from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.execution.operations import Operation
from vflsim.results.store.views import PartyView, RecordedViews
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.simulation.run import Outcome
from vflsim.streams import SHARED, generator
from vflsim.world.virtual import VirtualWorld

NOISE = {"kind": "gaussian", "clip": 1, "noise_multiplier": 0.1, "delta": 1e-5}
TWO: dict[str, Any] = {"partition": {"clients": 2, "by": "columns"}, "training__batch": "all", "stop": {"rounds": 1}}
VIEWED = {"record": {"views": "30 rows"}}


def views_of(outcome: Outcome) -> dict[str, PartyView]:
    assert outcome.views is not None
    return {view.path: view for view in RecordedViews.of(outcome.views)}


def performed(operation: Operation[Any]) -> torch.Tensor:
    operation.begin()
    operation.run()
    value: torch.Tensor = operation.result.value
    return value


def test_two_rows_of_two_clients_by_hand() -> None:
    scenario = tiny(record={"views": "2 rows"}, **TWO)
    outcome = run(scenario, execution=EAGER)
    data, views = data_of(scenario), views_of(outcome)
    assert sorted(views) == ["server/client-1/embedding", "server/client-2/embedding"]  # the run ends with its step
    returned = views_of(run(tiny(record={"views": "2 rows"}, **{**TWO, "stop": {"rounds": 2}}), execution=EAGER))
    rows = np.sort(generator(0, SHARED, "views").choice(90, 2, replace=False))
    assert outcome.views is not None
    assert outcome.views["rows"].tolist() == rows.tolist()
    server, clients = learners(scenario, "synchronous", 0, data)
    h = {m: clients[m].model(data.features[m - 1]["train"]).detach().requires_grad_() for m in (1, 2)}
    torch.nn.functional.cross_entropy(server.model((h[1] + h[2]) / 2), data.labels["train"]).backward()
    arrived = events(outcome, "transfer.embedding").set_index("party")["end_s"]
    for m in (1, 2):
        up, down = views[f"server/client-{m}/embedding"], returned[f"client-{m}/server/gradient"]
        assert h[m].grad is not None
        torch.testing.assert_close(up.values, h[m].detach()[rows], rtol=1e-12, atol=0)
        torch.testing.assert_close(down.values, h[m].grad[rows], rtol=1e-9, atol=1e-15)
        assert up.time_s.tolist() == [arrived[f"client-{m}"]] * 2


@pytest.mark.parametrize(
    ("protocol", "said", "through"),
    [
        ({"mechanism": NOISE}, {}, lambda h: h),
        ({}, {"codec": {"kind": "top_k", "count": 2}}, lambda h: h * (h.abs() >= h.abs().sort().values[:, -2:-1])),
    ],
)
def test_a_view_is_behind_noise_and_codec(
    protocol: dict[str, Any], said: dict[str, Any], through: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    scenario = tiny({"it": {"kind": "synchronous", **protocol}}, **VIEWED, **TWO, **said)
    outcome = run(scenario, execution=EAGER)
    batch = BatchSequence(90, scenario.training, 0, SHARED).batch(0)
    h = performed(learners(scenario, "it", 0, data_of(scenario))[1][1].embed(batch))
    view, place = views_of(outcome)["server/client-1/embedding"], np.argsort(batch.ids)
    assert outcome.views is not None
    assert torch.equal(view.values, through(h)[place[outcome.views["rows"]]])


@pytest.mark.parametrize("protocol", ["asynchronous", "synchronous"])
def test_a_view_holds_what_arrived_last_and_marks_what_never_did(protocol: str) -> None:
    said = {"training__batches": "own"} if protocol == "asynchronous" else {}
    scenario = tiny(protocol, timing=RANDOM_TIMING, stop={"rounds": 9 if said else 3}, **said, **VIEWED)
    outcome = run(scenario)
    missing = 0
    for path, view in views_of(outcome).items():
        receiver, sender, kind, *_ = path.split("/")
        client = int((receiver + sender).replace("server", "").removeprefix("client-"))
        batches = BatchSequence(90, scenario.training, 0, client)
        sent = events(outcome, f"transfer.{kind}", sender)
        sent = sent[(sent["outcome"] == "done") & (sent["peer"] == receiver)]
        last = dict.fromkeys(range(90), np.nan)
        for number, end in zip(sent["round"], sent["end_s"], strict=True):
            last |= dict.fromkeys(batches.batch(number).ids.tolist(), end)
        assert outcome.views is not None
        np.testing.assert_array_equal(view.time_s, [last[row] for row in outcome.views["rows"].tolist()])
        assert (view.values.isnan().all(1).numpy() == ~view.received).all()
        missing += int((~view.received).sum())
    assert missing


def test_a_later_embedding_replaces_an_earlier_one() -> None:
    said = {**VIEWED, "training__batch": "all"}
    once, twice = (views_of(run(tiny(stop={"rounds": n}, **said)))["server/client-1/embedding"] for n in (1, 2))
    assert (twice.time_s > once.time_s).all()
    assert not torch.equal(twice.values, once.values)


def test_shares_are_seen_as_field_elements_with_the_rows_that_they_mix() -> None:
    """R holders of one client's data together would recover it: every share is at its own place."""
    scenario = load(coded(arithmetic="decoded", more={**VIEWED, "data__train_rows": 89}))
    plan, clients = (
        coding_plan_of(scenario, "fedvs", data_of(scenario)),
        learners(scenario, "fedvs", 0, data_of(scenario))[1],
    )
    views = views_of(run(scenario))
    holders = [1, 3, 4, 5, 7]
    shares = [views[f"client-{holder}/client-2/data_share"] for holder in holders]
    decoded = plan.code.decode(
        torch.stack([share.values for share in shares]).long(), tuple(plan.places[holder] for holder in holders)
    )
    mixed = shares[0].mixed
    assert mixed is not None
    assert mixed.shape == (30, 2)
    quantised = torch.cat([clients[2].data_secret.quantised[:89], torch.zeros(1, decoded.shape[2])]).long()
    assert torch.equal(plan.quantiser.field.signed(decoded), torch.stack([quantised[column] for column in mixed.T]))
    answer = views["server/client-1/coded_embedding"]
    assert answer.values.dtype == torch.int32
    np.testing.assert_array_equal(answer.mixed[answer.received], mixed[answer.received])  # type: ignore[index]
    assert views["server/derived/mean"].values.dtype.is_floating_point


@pytest.mark.slow
def test_coded_and_decoded_arithmetic_are_seen_alike() -> None:
    one, other = (views_of(run(load(coded(arithmetic=kind, more=VIEWED)))) for kind in ("coded", "decoded"))
    assert all(torch.equal(view.values.nan_to_num(), other[path].values.nan_to_num()) for path, view in one.items())


def test_blinded_embeddings_are_integers_and_their_sum_is_a_view_of_its_own() -> None:
    blinded = {"it": {"kind": "synchronous", "blinding": {"bits": 64, "fraction": 30}}}
    views, plain = views_of(run(tiny(blinded, **VIEWED))), views_of(run(tiny("synchronous", **VIEWED)))
    ups = [f"server/client-{m}/embedding" for m in range(1, 5)]
    total = sum(views[up].values for up in ups)
    assert isinstance(total, torch.Tensor)
    assert total.dtype == torch.int64
    torch.testing.assert_close(views["server/derived/sum"].values, total.double() * 2.0**-30)
    clear = sum(plain[up].values for up in ups)
    torch.testing.assert_close(views["server/derived/sum"].values, clear, rtol=0, atol=1e-6)


WITH = ["synchronous", "asynchronous-bounded", "fedvs", "easter", "ef_vfl", "c_vfl", "vimadmm", "fedbcd-recomputed"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", WITH)
def test_recording_changes_nothing_else(kind: str) -> None:
    def go(said: dict[str, Any], **more: Any) -> Outcome:
        scenario = load(raw({"it": KINDS[kind]}, timing=RANDOM_TIMING, **said))
        return run(scenario, world=VirtualWorld(DeferredExecutor(limit_bytes=30_000)), **more)

    plain, viewed, eager = go({}), go(VIEWED), go(VIEWED, execution=EAGER)
    assert plain.views is None
    assert plain.tables == viewed.tables
    assert same_weights(plain, viewed)
    others = views_of(eager)
    for path, view in views_of(viewed).items():
        np.testing.assert_array_equal(view.time_s, others[path].time_s)
        torch.testing.assert_close(view.values, others[path].values, equal_nan=True, rtol=1e-9, atol=1e-12)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["synchronous", "asynchronous", "fedvs", "easter"])
def test_a_resumed_run_keeps_the_same_views(kind: str, tmp_path: Path) -> None:
    assert_interruptions_change_no_byte(load(raw({"it": KINDS[kind]}, timing=RANDOM_TIMING, **VIEWED)), tmp_path)
    assert (tmp_path / "whole" / "views.safetensors").stat().st_size > 1000


def test_real_time_records_views_too() -> None:
    views = views_of(run(tiny(stop={"rounds": 2}, **VIEWED), kind="real", speed=50.0))
    assert views["server/client-4/embedding"].received.any()


def test_all_protocols_record_the_same_rows() -> None:
    scenario: Scenario = tiny({"a": {"kind": "synchronous"}, "b": {"kind": "asynchronous"}}, **VIEWED)
    one, other, another = (run(scenario, name, seed) for name, seed in (("a", 0), ("b", 0), ("b", 1)))
    assert one.views is not None
    assert other.views is not None
    assert another.views is not None
    assert torch.equal(one.views["rows"], other.views["rows"])
    assert not torch.equal(one.views["rows"], another.views["rows"])


ALL = {"record": {"views": {"rows": 30, "keep": "all"}}}


def test_all_epochs_by_hand() -> None:
    """Each of two clients' embeddings, in each epoch as its model was then."""
    said = {**TWO, "stop": {"rounds": 3}}
    view = views_of(run(tiny(**ALL, **said), execution=EAGER))["server/client-2/embedding"]
    ends = [views_of(run(tiny(**VIEWED, **{**said, "stop": {"rounds": n}}), execution=EAGER)) for n in (1, 2, 3)]
    assert view.arrivals is not None
    assert view.arrivals.number.tolist() == [0] * 30 + [1] * 30 + [2] * 30
    for epoch, then in enumerate(end["server/client-2/embedding"] for end in ends):
        of = view.arrivals.number == epoch
        assert sorted(view.arrivals.row[of].tolist()) == list(range(30))
        assert torch.equal(view.arrivals.values[torch.from_numpy(of)], then.values[view.arrivals.row[of]])
        assert view.arrivals.time_s[of].tolist() == then.time_s[view.arrivals.row[of]].tolist()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", WITH)
def test_of_all_arrivals_the_last_are_the_views_that_keep_the_last(kind: str) -> None:
    def go(said: dict[str, Any]) -> Outcome:
        return run(load(raw({"it": KINDS[kind]}, timing=RANDOM_TIMING, stop={"rounds": 20}, **said)))

    last, everything = go(VIEWED), go(ALL)
    assert last.tables == everything.tables
    assert same_weights(last, everything)
    others = views_of(everything)
    for path, view in views_of(last).items():
        np.testing.assert_array_equal(view.time_s, others[path].time_s)
        if kind != "easter" or view.values.is_floating_point():  # masks follow from the whole scenario
            assert torch.equal(view.values.nan_to_num(), others[path].values.nan_to_num())
        assert (view.mixed is None) == (others[path].mixed is None)
        if view.mixed is not None:
            np.testing.assert_array_equal(view.mixed, others[path].mixed)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["synchronous", "asynchronous", "fedvs", "easter"])
def test_a_resumed_run_keeps_all_arrivals_too(kind: str, tmp_path: Path) -> None:
    assert_interruptions_change_no_byte(load(raw({"it": KINDS[kind]}, timing=RANDOM_TIMING, **ALL)), tmp_path)
