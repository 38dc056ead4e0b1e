"""Encryption as a cost: bytes of ciphertexts against those of libraries, and times of the parties' processors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch
from both_paths import assert_same_bytes, quick
from command_line import Ended
from protocols_by_kind import KINDS
from tiny_worlds import apart, assert_sound, data_of, rounds, run, tiny

from vflsim.analysis.stages import Unanalysable
from vflsim.codecs import Plain, measurement
from vflsim.codecs.encryption import TIMES, Ckks, Paillier
from vflsim.errors import DataError, ScenarioError
from vflsim.protocols.capabilities import closed_forms_of
from vflsim.scenario.resolve import setting
from vflsim.simulation.run import run_protocol
from vflsim.simulation.vectorised import obstacles

TABLE = {"encrypt": "4 ms", "add": "1 us", "multiply": "1 ms", "decrypt": "3 ms"}
UP = {"kind": "paillier", "packed": 8, "times": TABLE}


def events_of(codec: Any, protocol: str = "synchronous", **changes: Any) -> pd.DataFrame:
    keys = {"K": 1} if protocol == "fedvs" else {}
    scenario = tiny({"it": {"kind": protocol, **keys, "codec": codec}}, record="events", stop={"rounds": 3}, **changes)
    outcome = run_protocol(scenario, "it", 0, data_of(scenario, "it"), timing_only=True)
    if outcome.error is not None:
        raise outcome.error
    assert outcome.tables.events is not None
    return outcome.tables.events.to_pandas()


@pytest.mark.parametrize("key", [1024, 2048])
def test_a_ciphertext_has_the_bytes_of_phe(key: int) -> None:
    paillier = pytest.importorskip("phe").paillier
    public, private = paillier.generate_paillier_keypair(n_length=key)
    one, other = public.encrypt(0.25, precision=2**-32), public.encrypt(-0.5, precision=2**-32)
    assert private.decrypt(one + other) == -0.25
    codec = Paillier(key=key)
    sizes = [math.ceil(each.ciphertext().bit_length() / 8) for each in (one, other, one + other)]
    assert max(sizes) <= codec.ciphertext_bytes
    assert math.ceil(public.nsquare.bit_length() / 8) == codec.ciphertext_bytes
    assert codec.payload_bytes((20, 6), torch.float64) == 120 * codec.ciphertext_bytes


def test_as_many_values_as_are_packed_fit_into_a_plaintext_of_phe() -> None:
    paillier = pytest.importorskip("phe").paillier
    public, private = paillier.generate_paillier_keypair(n_length=1024)
    codec, values = Paillier(key=1024, packed=15), list(range(1, 16))
    plain = sum(value << 64 * place for place, value in enumerate(values))
    total = private.raw_decrypt(public.raw_encrypt(plain) * public.raw_encrypt(plain) % public.nsquare)
    assert [total >> 64 * place & 2**64 - 1 for place in range(15)] == [2 * value for value in values]
    assert codec.ciphertexts(15) == 1
    assert codec.ciphertexts(16) == 2


def test_a_ciphertext_has_about_the_bytes_of_tenseal() -> None:
    """In memory; what TenSEAL writes is compressed by less than a fifth, and has a header."""
    tenseal = pytest.importorskip("tenseal")
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 40, 60], n_threads=1)
    context.global_scale = 2**40
    written = len(tenseal.ckks_vector(context, [0.5] * 4096).serialize())
    assert 0.8 * Ckks().ciphertext_bytes < written < Ckks().ciphertext_bytes
    assert Ckks().payload_bytes((4096,), torch.float32) == Ckks().ciphertext_bytes
    assert Ckks().payload_bytes((4097,), torch.float32) == 2 * Ckks().ciphertext_bytes


def test_a_payload_of_another_length_is_refused() -> None:
    with pytest.raises(DataError, match="511 bytes of ciphertexts for shape"):
        Paillier().unpack(bytes(511), (1,), torch.float32)


def test_every_size_has_times_and_larger_keys_take_longer() -> None:
    for kind in ("paillier", "ckks"):
        rows = [times for (each, _), times in sorted(TIMES.items()) if each == kind]
        for key in ("encrypt", "add", "multiply", "decrypt"):
            taken = [getattr(times, key) for times in rows]
            assert taken[0] > 0
            assert taken == sorted(taken)


def test_clients_encrypt_and_the_server_decrypts_all_of_them() -> None:
    """Batches of 20 rows × 6 elements are 15 ciphertexts of 8 values, 60 of all four clients."""
    events = events_of(UP)
    lasts = events["end_s"] - events["start_s"]
    encrypted, decrypted = lasts[events["kind"] == "compute.encrypt"], lasts[events["kind"] == "compute.decrypt"]
    assert encrypted.tolist() == pytest.approx([15 * 0.004] * len(encrypted), abs=1e-9)
    assert decrypted.tolist() == pytest.approx([60 * 0.003] * len(decrypted), abs=1e-9)
    assert set(events.loc[events["kind"] == "compute.encrypt", "party"]) == {f"client-{k}" for k in (1, 2, 3, 4)}
    sent = events[events["kind"].str.startswith("send") | (events["bytes"] > 0)]
    assert set(sent.loc[sent["peer"] == "server", "bytes"]) == {60 + 15 * 512}
    assert set(sent.loc[sent["party"] == "server", "bytes"]) == {Plain().size((20, 6), torch.float64)}


def test_gradients_are_encrypted_if_they_are_asked_for() -> None:
    events = events_of({**UP, "gradients": True})
    by = events.groupby("kind")["party"].agg(set)
    assert by["compute.encrypt"] == by["compute.decrypt"] == {"server", *(f"client-{k}" for k in (1, 2, 3, 4))}


def test_integers_and_evaluations_outside_time_are_not_encrypted() -> None:
    assert (events_of(UP, evaluate={"every": "1 rounds"})["kind"] == "compute.encrypt").sum() == 12
    assert not (events_of(UP, "fedvs")["kind"] == "compute.encrypt").any()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["synchronous", "easter-clear", "fedbcd-sequential", "vimadmm", "agg_vfl"])
def test_training_is_that_of_the_plain_codec_and_takes_longer(name: str) -> None:
    outcomes = []
    for codec in ("plain", {**UP, "gradients": True}):
        scenario = tiny({"it": {**KINDS[name], "codec": codec}}, stop={"rounds": 4}, evaluate={"every": "2 rounds"})
        outcomes.append(run(scenario, "it"))
        assert_sound(outcomes[-1])
    assert apart(*outcomes) < 1e-12
    plain, encrypted = (rounds(outcome)["end_s"].iloc[-1] for outcome in outcomes)
    assert encrypted > plain + 1


def test_it_runs_in_real_time() -> None:
    scenario = tiny({"it": {"kind": "synchronous", "codec": UP}}, stop={"rounds": 3})
    virtual, real = (run(scenario, "it", kind=kind) for kind in ("virtual", "real"))
    assert apart(virtual, real) < 1e-12


def test_arrays_leave_the_bytes_of_events() -> None:
    assert_same_bytes(quick({"kind": "synchronous", "codec": UP}, record="events"))
    assert_same_bytes(quick({"kind": "synchronous", "codec": "ckks"}))


def test_the_closed_form_counts_the_ciphertexts() -> None:
    plain, encrypted = (
        tiny({"it": {"kind": "synchronous", "codec": codec}}, timing={"network": "dedicated"})
        for codec in ("plain", {**UP, "packed": 1})
    )
    laws = [
        closed_forms_of(each.protocols["it"].protocol, setting(each, "it", data_of(each, "it")))[0]
        for each in (plain, encrypted)
    ]
    more = laws[1].law.expectation() - laws[0].law.expectation()
    ciphertexts = 18 * 6  # on average: of batches of 20 rows, the last of 10
    assert more == pytest.approx(ciphertexts * 0.004 + 4 * ciphertexts * 0.003)


def test_recurrences_and_closed_forms_by_hand_refuse_it() -> None:
    scenario = tiny({"it": {"kind": "t_synchronous", "t": 2, "codec": "ckks"}}, record="rounds")
    assert any(
        "adds work that the recurrence of t_synchronous" in problem.what for problem in obstacles(scenario, "it")
    )
    with pytest.raises(Unanalysable, match="ckks adds work"):
        closed_forms_of(scenario.protocols["it"].protocol, setting(scenario, "it", data_of(scenario, "it")))


@pytest.mark.parametrize(
    ("codec", "says"),
    [
        ({"kind": "paillier", "packed": 33}, "allowed: 1 to 32, key ÷ 64"),
        ({"kind": "paillier", "key": 512}, "1024, 2048, 3072, 4096"),
        ({"kind": "ckks", "degree": 4096}, "8192, 16384"),
    ],
)
def test_keys_are_checked(codec: Any, says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        tiny({"it": {"kind": "synchronous", "codec": codec}})
    assert says in str(caught.value)


def test_the_command_measures_codecs_that_load(vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:

    measure = {"packed": 1, "times": TABLE}
    monkeypatch.setattr(measurement, "_paillier", lambda key: Paillier.model_validate(measure).times)
    monkeypatch.setattr(measurement, "_ckks", lambda degree: Paillier.model_validate(measure).times)
    ended = vflsim("calibrate", "--encryption")
    assert ended.status == 0
    lines = [line for line in ended.out.splitlines() if line.startswith("codec: ")]
    assert len(lines) == len(TIMES)
    assert "codec: {kind: paillier, key: 2048, times: {encrypt: 4000 us, add: 1 us, multiply: 1000 us" in ended.out


def test_the_command_wants_a_source_or_the_measurement(vflsim: Callable[..., Ended]) -> None:
    assert "no source" in vflsim("calibrate").err
    assert "beside another source" in vflsim("calibrate", "results", "--encryption").err


def test_without_libraries_the_command_names_the_extra(
    vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for library in ("phe", "tenseal"):
        monkeypatch.setitem(sys.modules, library, None)
    ended = vflsim("calibrate", "--encryption")
    assert ended.status == 2
    assert "pip install 'vflsim[encryption]'" in ended.err


def test_measured_times_are_of_this_machine() -> None:
    pytest.importorskip("phe")
    from vflsim.codecs.measurement import _paillier

    times = _paillier(1024)
    assert times.add < times.multiply < times.decrypt < times.encrypt
