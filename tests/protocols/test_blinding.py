"""Whole runs in which clients blind their embeddings: what is learnt, what is sent, and rounds that lack a client."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from tiny_worlds import (
    EAGER,
    RANDOM_TIMING,
    WORLDS,
    apart,
    data_of,
    events,
    metrics,
    raw,
    rounds,
    run,
    same_times,
    tiny,
)
from torch import Tensor

from vflsim.analysis.findings import ClosedForm
from vflsim.errors import BlindingError, IncompleteRoundError, NonFiniteError, NoProgressError
from vflsim.learning.privacy.blinding import BlindedSum, Masks
from vflsim.protocols.capabilities import closed_forms_of
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.vocabulary.execution_options import USUAL, Execution

KINDS: dict[str, dict[str, Any]] = {
    "synchronous": {"kind": "synchronous"},
    "ignore": {"kind": "ignore", "exclude": "2"},
    "easter": {"kind": "easter"},
}
FINE: dict[str, Any] = {"bits": 64, "fraction": 40}
each_kind = pytest.mark.parametrize("name", KINDS)


def pair(name: str, blinding: Any = "on", **changes: Any) -> Any:
    """The protocol in the clear and blinded."""
    said = KINDS[name]
    return tiny({"clear": {**said, "blinding": "off"}, "blinded": {**said, "blinding": blinding}}, **changes)


# --- what is learnt -------------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@each_kind
@pytest.mark.parametrize(("blinding", "fraction"), [("on", 16), (FINE, 40)], ids=["16", "40"])
def test_training_is_that_in_the_clear_up_to_the_rounding(name: str, blinding: Any, fraction: int) -> None:
    """12 steps of rates 0.1: each moves weights by some rate · 2^-(fraction + 1) more."""
    scenario = pair(name, blinding, timing=RANDOM_TIMING)
    difference = apart(run(scenario, "clear"), run(scenario, "blinded"))
    assert 0 < difference <= 12 * 2.0**-fraction


@pytest.mark.sampled(3)
@pytest.mark.parametrize("execution", [USUAL, EAGER], ids=["batched", "eager"])
@each_kind
def test_masks_change_no_bit_of_the_run(name: str, execution: Execution, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the same run in fixed point with masks of zero."""
    scenario = pair(name, timing=RANDOM_TIMING)
    masked, of = run(scenario, "blinded", execution=execution), Masks.of
    monkeypatch.setattr(Masks, "of", lambda *arguments: 0 * of(*arguments))
    bare = run(scenario, "blinded", execution=execution)
    assert masked.tables == bare.tables
    assert all(torch.equal(tensor, bare.weights[key]) for key, tensor in masked.weights.items())


def test_noise_comes_first_and_is_blinded_with_the_embedding() -> None:
    noise = {"kind": "gaussian", "clip": 1.0, "delta": 1e-5, "noise_multiplier": 0.5}
    said = {"kind": "synchronous", "mechanism": noise}
    scenario = tiny({"clear": said, "blinded": {**said, "blinding": FINE}}, timing=RANDOM_TIMING)
    clear, blinded = run(scenario, "clear"), run(scenario, "blinded")
    assert 0 < apart(clear, blinded) <= 12 * 2.0**-40
    assert clear.info.privacy == blinded.info.privacy
    assert clear.info.privacy is not None


@pytest.mark.parametrize("fraction", [27, 25], ids=["from the start", "in training"])
def test_a_fixed_point_too_narrow_for_the_embeddings_ends_the_run_and_names_the_client(fraction: int) -> None:
    """Initial embeddings reach 1.5; at this rate they grow past 4 in training, and the run in the clear finishes."""
    said = {"kind": "synchronous", "blinding": {"fraction": fraction}}
    clear = {**said, "blinding": "off"}
    changes: dict[str, Any] = {"models__aggregate": "sum", "training__client_optimizer": {"kind": "sgd", "lr": 4}}
    scenario = tiny({"it": said, "clear": clear}, **changes)
    assert run(scenario, "clear").info.status == "finished"
    outcome = run_protocol(scenario, "it", 0, data_of(scenario))
    assert isinstance(outcome.error, BlindingError)
    assert re.match(r"client-\d, embed, round", outcome.error.where)
    assert f"magnitudes up to {2.0 ** (27 - fraction):g}, with 32 bits and {fraction} after" in str(outcome.error)
    assert outcome.info.status == "failed"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("lr", [1e100, 1e200], ids=["out of the fixed point", "to infinity"])
@pytest.mark.parametrize("execution", [USUAL, EAGER], ids=["batched", "eager"])
@each_kind
def test_a_run_that_diverges_in_the_clear_diverges_blinded(name: str, execution: Execution, lr: float) -> None:
    """Rates so large that 12 rounds end in NaN on any processor; at 10⁴, the last bit of a product decides."""
    sgd = {"kind": "sgd", "lr": lr}
    scenario = pair(name, training__client_optimizer=sgd, training__server_optimizer=sgd)
    for each in ("clear", "blinded"):
        outcome = run_protocol(scenario, each, 0, data_of(scenario), execution=execution)
        assert outcome.info.status == "diverged", each
        assert isinstance(outcome.error, NonFiniteError)
        assert outcome.error.remedy.startswith("a smaller learning rate, scaled features, or, of a regression, labels")
    assert re.match(r"client-\d, embed, round", outcome.error.where)


# --- what is sent ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("blinding", "each"), [("on", 4), (FINE, 8)], ids=["32", "64"])
def test_an_upload_takes_its_integers_bytes_and_keys_take_32(blinding: Any, each: int) -> None:
    outcome = run(pair("synchronous", blinding), "blinded")
    sent = events(outcome)
    sizes = {kind: set(sent[sent["kind"] == f"transfer.{kind}"]["bytes"]) for kind in ("embedding", "public_key")}
    frame = 60
    assert sizes == {"embedding": {frame + rows * 6 * each for rows in (20, 10)}, "public_key": {frame + 32}}
    assert set(sent[sent["kind"] == "transfer.public_keys"]["bytes"]) == {frame + 4 * 32}
    assert sent["kind"].eq("transfer.public_keys").sum() == sent["kind"].eq("transfer.public_key").sum() == 4


def test_uploads_are_new_in_every_round_and_hide_the_embeddings(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[Tensor, Tensor]] = []
    masked = BlindedSum.masked

    def watched(self: BlindedSum, h: Tensor, mask: Any) -> Tensor:
        sent.append((h.clone(), masked(self, h, mask)))
        return sent[-1][1]

    monkeypatch.setattr(BlindedSum, "masked", watched)
    run(pair("synchronous"), "blinded")
    h, uploads = (torch.cat([each[place].flatten() for each in sent]).double().numpy() for place in (0, 1))
    assert len(np.unique(uploads)) > 0.999 * len(uploads)
    assert abs(np.corrcoef(h, uploads)[0, 1]) < 3.3 / np.sqrt(len(h))  # fails one in 1000; the seed is fixed


def masks_of(scenario: Scenario, name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> set[bytes]:
    """The masks of all uploads of a run."""
    used: set[bytes] = set()
    masked = BlindedSum.masked

    def watched(self: BlindedSum, h: Tensor, mask: Any) -> Tensor:
        used.add(mask.tobytes())
        return masked(self, h, mask)

    with monkeypatch.context() as patch:
        patch.setattr(BlindedSum, "masked", watched)
        run(scenario, name, seed)
    assert len(used) == 3 * scenario.clients
    return used


def test_no_two_runs_share_a_mask_so_differences_of_their_uploads_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two entries, two seeds, and the same entry at another point of a sweep."""
    faster = {"training": {"client_optimizer": {"kind": "sgd", "lr": 0.4}}}
    entries = {"one": {"kind": "synchronous", "blinding": "on"}}
    entries["other"] = {**entries["one"], **faster}
    scenario = tiny(entries, stop={"rounds": 3})
    point = tiny({"one": entries["one"]}, stop={"rounds": 3}, training__client_optimizer={"kind": "sgd", "lr": 0.3})
    runs = [(scenario, "one", 0), (scenario, "other", 0), (scenario, "one", 1), (point, "one", 0)]
    found = [masks_of(*each, monkeypatch) for each in runs]
    assert len(set.union(*found)) == sum(map(len, found))


def test_the_same_run_under_another_name_or_to_a_later_end_has_the_same_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"kind": "synchronous", "blinding": "on"}
    one = masks_of(tiny({"one": said}, stop={"rounds": 3}), "one", 0, monkeypatch)
    other = masks_of(
        tiny({"other": said, "more": {"kind": "ignore", "fastest": 1}}, name="x", stop={"epochs": 0.6}),
        "other",
        0,
        monkeypatch,
    )
    assert one == other


def test_masking_counts_as_operations_of_the_embedding() -> None:
    compute = {"kind": "flops", "rate": "1 MFLOPS"}
    scenario = pair("synchronous", timing={"clients": {"select": "all", "compute": compute}})
    clear, blinded = (events(run(scenario, name), "compute.embed", "client-1").iloc[0] for name in ("clear", "blinded"))
    more = (blinded["end_s"] - blinded["start_s"] - (clear["end_s"] - clear["start_s"])) * 1e6
    assert more == pytest.approx(3 * (8 * 976 + 120))  # 120 elements of 4 bytes: 8 blocks for each of 3 other clients


@pytest.mark.sampled(2)
@each_kind
def test_closed_forms_know_the_bytes_and_the_operations_of_blinding(name: str) -> None:
    link = {"up": "1 Mbps", "down": "1 Mbps", "latency": "2 ms"}
    everybody = {"select": "all", "compute": {"kind": "flops", "rate": "1 MFLOPS"}, "link": link}
    timing = {"network": "dedicated", "clients": everybody}
    scenario = pair(name, timing=timing, training__last_batch="drop")
    means = []
    for each in ("clear", "blinded"):
        (form,) = closed_forms_of(scenario.protocols[each].protocol, setting(scenario, each, data_of(scenario)))
        assert isinstance(form, ClosedForm)
        took = rounds(run(scenario, each)).iloc[1:]
        assert (took["end_s"] - took["start_s"]).to_numpy() == pytest.approx(form.mean.low, rel=1e-9)
        means.append(form.mean.low)
    assert means[0] != means[1]


@each_kind
def test_timing_alone_takes_the_times_of_training(name: str) -> None:
    scenario = pair(name, timing=RANDOM_TIMING)
    alone, trained = run(scenario, "blinded", timing_only=True), run(scenario, "blinded")
    assert events(alone).equals(events(trained))
    assert rounds(alone).equals(rounds(trained))
    assert alone.info.blinding == trained.info.blinding


@each_kind
def test_eager_is_batched(name: str) -> None:
    scenario = pair(name, timing=RANDOM_TIMING)
    batched, eager = (run(scenario, "blinded", execution=each) for each in (USUAL, EAGER))
    assert same_times(batched, eager)
    assert apart(batched, eager) < 1e-12


# --- rounds that lack a client --------------------------------------------------------------------------------------


def scenario(said: dict[str, Any], availability: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Three clients; embedding, client's and server's step take 1 s each, links no time; client m uploads in m s.

    Keys arrive after 1, 2 and 3 s, so rounds begin at 3 s. An undisturbed round 0 ends at 8 s (embed 1, upload 3, step
    1), and each further one takes 6 s (client step, embed, upload, step).
    """
    clients = [
        {"select": "all", "compute": "1 s", "upload_delay": "m s"},
        *({"select": select, "availability": each} for select, each in availability.items()),
    ]
    timing = {"server": {"compute": "1 s"}, "clients": clients}
    changes = {"stop": {"rounds": 3}, **changes}
    return raw({"it": said}, timing=timing, partition={"clients": 3, "by": "columns"}, **changes)


def down(*times: float | str) -> dict[str, Any]:
    """A client that crashes at every other of these times."""
    return {"kind": "intervals", "down": [*zip(times[::2], times[1::2], strict=True)], "interrupted": "lost"}


def blinded(missing: str, **more: Any) -> dict[str, Any]:
    return {"kind": "synchronous", "blinding": {"missing": missing}, **more}


def ends(outcome: Outcome) -> list[float]:
    return rounds(outcome)["end_s"].tolist()


def lacked(outcome: Outcome) -> list[tuple[float, int, list[int], str]]:
    rows = outcome.extra["missing_masks"].to_pylist() if "missing_masks" in outcome.extra else []
    return [(row["time_s"], row["round"], row["clients"], row["rule"]) for row in rows]


def test_keys_are_exchanged_before_the_first_round() -> None:
    outcome = run(load(scenario(blinded("wait"), {})))
    assert ends(outcome) == [8, 14, 20]
    assert events(outcome, "upload.public_key")["end_s"].tolist() == [1, 2, 3]
    assert events(outcome, "transfer.public_keys")["end_s"].tolist() == [3, 3, 3]
    assert lacked(outcome) == []
    assert outcome.info.blinding is not None
    assert (outcome.info.blinding.rounds_missing, outcome.info.blinding.lacked) == (0, {})


CRASH = {"2": down(11.5, 12.5)}
"""In round 1 client 2 embeds from 9 to 10, and crashes before it has uploaded. It embeds anew from 12.5 to 13.5, and
uploads until 15.5. The others have uploaded at 11 and 13."""


def test_wait_waits_for_a_client_that_crashed() -> None:
    outcome = run(load(scenario(blinded("wait"), CRASH)))
    assert ends(outcome) == [8, 16.5, 22.5]
    assert rounds(outcome)["used"].map(list).tolist() == [[1, 2, 3]] * 3
    assert lacked(outcome) == [(13, 1, [2], "wait")]


def test_skip_gives_the_round_up_and_nobody_steps() -> None:
    outcome = run(load(scenario(blinded("skip"), CRASH)))
    # At 13 clients 1 and 3 begin batch 2; client 2 finishes its upload at 15.5, and then embeds until 16.5. It uploads
    # until 18.5; the server steps until 19.5. Round 3 takes 6 s.
    assert ends(outcome) == [8, 19.5, 25.5]
    assert lacked(outcome) == [(13, 1, [2], "skip")]
    steps = events(outcome, "compute.client_step")
    assert steps["round"].tolist() == [-1] * len(steps)
    assert steps[steps["outcome"] == "done"].groupby("party", observed=True).size().tolist() == [2, 2, 2]
    embeds = events(outcome, "compute.embed", "client-1")
    assert embeds["end_s"].tolist() == [4, 10, 14, 21.5]


def test_stop_ends_the_run_and_names_round_and_client() -> None:
    outcome = run(load(scenario(blinded("stop"), CRASH)))
    assert outcome.info.stop_reason == "masks left over in round 1: no embedding of client-2"
    assert ends(outcome) == [8]
    assert metrics(outcome)["time_s"].iloc[-1] == 13
    assert outcome.note == "1 round lacked a blinded embedding: client-2 in 1 (missing: stop)"
    assert outcome.info.blinding is not None
    assert outcome.info.blinding.lacked == {2: 1}


@pytest.mark.parametrize("missing", ["wait", "skip", "stop"])
def test_easter_does_the_same(missing: str) -> None:
    """Its client 2 crashes at 14.5 in the first trip of round 1; here the second trip adds 4 s to a round."""
    said = {"kind": "easter", "blinding": {"missing": missing}}
    outcome = run(load(scenario(said, {"2": down(14.5, 15)})))
    assert [(k, clients, rule) for _, k, clients, rule in lacked(outcome)] == [(1, [2], missing)]
    steps = events(outcome, "compute.client_step")
    done = steps[steps["outcome"] == "done"].groupby("party", observed=True).size().tolist()
    assert (outcome.info.stop_reason == "rounds") is (missing != "stop")
    assert done == ([1, 1, 1] if missing == "stop" else [2, 2, 2])


def test_ignore_drops_nobody_whose_masks_it_waits_for() -> None:
    said = {"kind": "ignore", "fastest": 2, "blinding": {"missing": "wait"}}
    outcome = run(load(scenario(said, {})))
    assert ends(outcome) == [8, 14, 20]
    assert rounds(outcome)["used"].map(list).tolist() == [[1, 2, 3]] * 3
    assert lacked(outcome) == [(6, 0, [3], "wait"), (12, 1, [3], "wait"), (18, 2, [3], "wait")]


def test_ignore_gives_up_the_rounds_of_a_deadline_that_somebody_misses() -> None:
    said = {"kind": "ignore", "deadline": "5 s", "blinding": {"missing": "skip"}}
    outcome = run(load(scenario(said, {"3": down(9.5, 10)})))
    # Round 1 has the deadline 13; client 3 embeds anew until 11, uploads until 14, and then finds the empty gradient of
    # round 1. Clients 1 and 2 begin round 2 at 13. Its deadline is 18: client 3 embeds until 15, and uploads until 18.
    assert lacked(outcome) == [(13, 1, [3], "skip")]
    assert ends(outcome) == [8, 19, 25]


def test_a_client_that_crashes_before_it_has_the_keys_gets_them_again() -> None:
    outcome = run(load(scenario(blinded("wait"), {"2": down(2.5, 4)})))
    # Its key is there at 2, and the others' pass it by at 3. It sends its own again from 4 to 6, embeds until 7, and
    # uploads until 9.
    assert events(outcome, "upload.public_key", "client-2")[["start_s", "end_s"]].to_numpy().tolist() == [
        [0, 2],
        [4, 6],
    ]
    assert ends(outcome)[0] == 10
    assert lacked(outcome) == [(7, 0, [2], "wait")]


@pytest.mark.parametrize("missing", ["wait", "skip"])
def test_a_client_that_is_gone_for_good_ends_the_run(missing: str) -> None:
    made = load(
        scenario(blinded(missing), {"2": {"kind": "failure", "at": "11.5 s", "repair": "never", "interrupted": "lost"}})
    )
    outcome = run_protocol(made, "it", 0, data_of(made), timing_only=True)
    assert isinstance(outcome.error, IncompleteRoundError)
    assert "client" in outcome.error.what
    assert "2 went down for good" in outcome.error.what.replace("-", " ").replace("client 2", "2")
    assert ends(outcome) == [8]


def test_rounds_without_anybody_are_given_up_once_somebody_is_back() -> None:
    outcome = run(load(scenario(blinded("skip"), {"all": down(9.5, 10.5)})))
    # All embed batch 1 anew until 11.5; at 12.5 the first upload is there. Client 1 begins round 2 at once, client 2 at
    # 13.5, client 3 at 14.5: it embeds until 15.5, and uploads until 18.5.
    assert lacked(outcome) == [(9.5, 1, [1, 2, 3], "skip")]
    assert ends(outcome) == [8, 19.5, 25.5]


def test_a_run_that_only_gives_up_rounds_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflsim.protocols.blinded.GIVEN_UP_IN_A_ROW", 5)
    said = {"kind": "ignore", "deadline": "1 s", "blinding": {"missing": "skip"}}
    made = load(scenario(said, {}))
    outcome = run_protocol(made, "it", 0, data_of(made), timing_only=True)
    assert isinstance(outcome.error, NoProgressError)
    assert "5 rounds in a row were given up, the latest without client-" in outcome.error.what


def test_a_round_done_again_after_a_crash_is_uploaded_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Client 1 has uploaded batch 1 at 11 and crashes at 12. With new noise under the old mask it would give away the
    difference."""
    sent: list[tuple[int, int]] = []
    of = Masks.of

    def watched(self: Masks, kind: str, number: int, count: int) -> Any:
        sent.append((self._own, number))
        return of(self, kind, number, count)

    monkeypatch.setattr(Masks, "of", watched)
    noise = {"kind": "gaussian", "clip": 1.0, "delta": 1e-5, "noise_multiplier": 0.5}
    outcome = run(load(scenario(blinded("wait", mechanism=noise), {"1": down(12, 12.5)})))
    assert len(sent) == len(set(sent))
    embeds = events(outcome, "compute.embed", "client-1")
    assert embeds["outcome"].tolist().count("done") > 3
    assert ends(outcome) == [8, 14, 20]  # the server had its upload


@pytest.mark.parametrize("kind", WORLDS)
def test_both_worlds_exchange_keys_and_survive_a_crash(kind: str) -> None:
    made = load(
        raw(
            {"it": blinded("skip")},
            timing={
                "clients": [
                    {"select": "all", "upload_delay": "m ms"},
                    {"select": "2", "availability": down("40 ms", "60 ms", "100 ms", "120 ms")},
                ]
            },
            stop={"rounds": 20},
        )
    )
    outcome = run(made, kind=kind)
    assert outcome.info.counts["rounds"] == 20
    assert metrics(outcome)["test_loss"].notna().all()
