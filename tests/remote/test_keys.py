"""Identities: who may connect, and as whom; and public keys, believed if their owners have signed them for this run."""

import dataclasses
import json
import ssl
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_worlds import RANDOM_TIMING, data_of, raw, tiny

from vflsim.errors import BlindingError
from vflsim.learning.privacy.blinding import public_key
from vflsim.protocols import blinded
from vflsim.protocols.hook_checks import learners_of
from vflsim.remote.control import Voucher
from vflsim.remote.keys import (
    AUTHORITY_KEY,
    KEY,
    IdentityError,
    VouchedRun,
    VoucherError,
    checked,
    client_context,
    host_of,
    make_identities,
    party_of,
    server_context,
    vouch,
)
from vflsim.remote.server import LiveServer
from vflsim.scenario import load
from vflsim.scenario.resolve import setting


def certificate(identities: Path, name: str) -> object:
    """What a verified connection says of a certificate, read without a connection."""
    return ssl._ssl._test_decode_cert(str(identities / "ours" / name / "certificate.pem"))  # type: ignore[attr-defined]


def test_a_certificate_names_its_party(identities: Path) -> None:
    assert [party_of(certificate(identities, name)) for name in ("server", "client-1", "client-2")] == [0, 1, 2]
    assert host_of(0) == "server.parties.vflsim"


@pytest.mark.parametrize(
    "names",
    [
        (),
        (("DNS", "client-1.elsewhere"),),
        (("DNS", "client-0.parties.vflsim"),),
        (("DNS", "client-01.parties.vflsim"),),
        (("DNS", "client-١.parties.vflsim"),),
        (("DNS", "client-99999999.parties.vflsim"),),
        (("DNS", "client-1.parties.vflsim"), ("DNS", "client-2.parties.vflsim")),
        (("IP Address", "client-1.parties.vflsim"),),
    ],
)
def test_other_certificates_name_nobody(names: tuple[tuple[str, str], ...]) -> None:
    assert party_of({"subjectAltName": names}) is None
    assert party_of(None) is None


def test_keys_are_readable_by_their_owner_only(identities: Path) -> None:
    for key in (identities / "ours" / AUTHORITY_KEY, identities / "ours" / "client-1" / KEY):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_both_sides_ask_for_certificates_and_speak_nothing_older_than_tls_1_3(identities: Path) -> None:
    for context in (server_context(identities / "ours/server"), client_context(identities / "ours/client-1")):
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.minimum_version == ssl.TLSVersion.TLSv1_3
    assert client_context(identities / "ours/client-1").check_hostname


def test_an_existing_folder_is_not_touched(identities: Path) -> None:
    before = (identities / "ours" / AUTHORITY_KEY).read_bytes()
    with pytest.raises(IdentityError, match="the folder exists"):
        make_identities(identities / "ours", clients=1)
    assert (identities / "ours" / AUTHORITY_KEY).read_bytes() == before


@pytest.mark.parametrize("make", [server_context, client_context])
def test_a_folder_without_an_identity_is_one_message(make: object, tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="no identity can be read") as caught:
        make(tmp_path)  # type: ignore[operator]
    assert "vflsim keys init" in str(caught.value)


RUN, KEY_BYTES = VouchedRun("a" * 64, "blind", 3), bytes(range(32))


BLINDED = {"kind": "synchronous", "blinding": "on", "models": {"aggregate": "mean"}}


def test_a_key_that_its_owner_has_signed_is_believed(identities: Path) -> None:
    voucher = vouch(identities / "ours" / "client-1", RUN, 1, KEY_BYTES)
    assert checked(voucher, identities / "ours" / "client-2", RUN) == KEY_BYTES


OTHERS: dict[str, dict[str, Any]] = {
    "another key": {"key": bytes(32).hex()},
    "another party": {"party": 2},
    "another signature": {"signature": "00" * 70},
    "no certificate": {"certificate": "none"},
}


@pytest.mark.parametrize("changed", OTHERS.values(), ids=OTHERS)
def test_what_a_server_could_change_is_found(changed: dict[str, Any], identities: Path) -> None:
    voucher = vouch(identities / "ours" / "client-1", RUN, 1, KEY_BYTES).model_copy(update=changed)
    with pytest.raises(VoucherError, match=r"the public key of client-[12] is not signed by it for this run"):
        checked(voucher, identities / "ours" / "client-2", RUN)


@pytest.mark.parametrize("other", [{"seed": 4}, {"protocol": "clear"}, {"scenario": "b" * 64}])
def test_a_key_of_another_run_is_not_believed(other: dict[str, Any], identities: Path) -> None:
    voucher = vouch(identities / "ours" / "client-1", dataclasses.replace(RUN, **other), 1, KEY_BYTES)
    with pytest.raises(VoucherError, match="not signed by it for this run"):
        checked(voucher, identities / "ours" / "client-2", RUN)


def test_the_server_and_other_authorities_cannot_vouch_for_a_client(identities: Path) -> None:
    own = identities / "ours" / "client-2"
    with pytest.raises(VoucherError, match=r"the public key of client-1 is signed by server\.parties"):
        checked(vouch(identities / "ours" / "server", RUN, 1, KEY_BYTES), own, RUN)
    with pytest.raises(VoucherError, match="not signed by it"):
        checked(vouch(identities / "theirs" / "client-1", RUN, 1, KEY_BYTES), own, RUN)
    with pytest.raises(VoucherError, match="the certificate of client-1 is not valid today"):
        checked(vouch(identities / "past" / "client-1", RUN, 1, KEY_BYTES), identities / "past" / "client-2", RUN)


def test_an_identity_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="no key can be read"):
        vouch(tmp_path, RUN, 1, KEY_BYTES)


def test_a_voucher_is_a_control_message_of_bounded_size() -> None:
    with pytest.raises(ValueError, match="key"):
        Voucher(party=1, key="zz", signature="00", certificate="")


def test_a_client_refuses_keys_that_differ_from_those_vouched_for() -> None:
    scenario = tiny({"only": BLINDED})
    learners = learners_of(scenario.protocols["only"].protocol, setting(scenario, "only", data_of(scenario)), 0)
    blinder = learners.clients[1].blinder
    keys = {client: public_key(learner.blinder.private) for client, learner in learners.clients.items()}
    table = torch.tensor([list(key) for key in keys.values()], dtype=torch.uint8)
    blinder.agree(table)  # trusted, unless vouchers are asked for
    blinder.vouched = {client: key for client, key in keys.items() if client != 1}
    blinder.agree(table)
    table[2] = 7
    with pytest.raises(BlindingError, match="the public key of client 3 is not the one that it has signed"):
        blinder.agree(table)
    blinder.vouched = {}
    with pytest.raises(BlindingError, match="the public key of client 2"):
        blinder.agree(table)


@pytest.mark.slow
def test_a_server_that_puts_its_own_key_between_two_clients_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = raw({"only": BLINDED}, timing=RANDOM_TIMING, stop={"rounds": 4})
    said["partition"]["clients"] = 2
    file = tmp_path / "scenario.yaml"
    file.write_text(json.dumps(said))
    make_identities(tmp_path / "keys", clients=2)
    joined = blinded.join_keys

    def lying(learner: Any, messages: Any) -> Any:
        operation = joined(learner, messages)
        run = operation.run

        def put_another() -> None:
            run()
            operation.result.value[1] = torch.tensor(list(public_key(bytes(range(1, 33)))), dtype=torch.uint8)

        operation.run = put_another
        return operation

    monkeypatch.setattr(blinded, "join_keys", lying)
    server = LiveServer(load(file), tmp_path / "keys" / "server", tmp_path / "parts", timeout=60.0)
    port = server.open("127.0.0.1", 0)
    vflsim = [sys.executable, "-m", "vflsim", "party", str(file), "--connect", f"127.0.0.1:{port}", "--timeout", "60"]
    vflsim += ["--parts", str(tmp_path / "parts")]
    clients = [
        subprocess.Popen([*vflsim, "--party", str(number), "--identity", str(tmp_path / "keys" / f"client-{number}")])
        for number in (1, 2)
    ]
    try:
        server.wait(within=120.0)
        outcome = server.run("only", seed=0)
        assert outcome.error is not None
        assert "the public key of client 2 is not the one that it has signed" in str(outcome.error)
    finally:
        server.close()
        for client in clients:
            client.wait(60)
