"""Identities: who may connect, and as whom."""

import ssl
import stat
from pathlib import Path

import pytest

from vflsim.remote.keys import (
    AUTHORITY_KEY,
    KEY,
    IdentityError,
    client_context,
    host_of,
    make_identities,
    party_of,
    server_context,
)


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "identities"
    make_identities(folder, clients=2)
    return folder


def certificate(identities: Path, name: str) -> object:
    """What a verified connection says of a certificate, read without a connection."""
    return ssl._ssl._test_decode_cert(str(identities / name / "certificate.pem"))  # type: ignore[attr-defined]


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
    for key in (identities / AUTHORITY_KEY, identities / "client-1" / KEY):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_both_sides_ask_for_certificates_and_speak_nothing_older_than_tls_1_3(identities: Path) -> None:
    for context in (server_context(identities / "server"), client_context(identities / "client-1")):
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.minimum_version == ssl.TLSVersion.TLSv1_3
    assert client_context(identities / "client-1").check_hostname


def test_an_existing_folder_is_not_touched(identities: Path) -> None:
    before = (identities / AUTHORITY_KEY).read_bytes()
    with pytest.raises(IdentityError, match="the folder exists"):
        make_identities(identities, clients=1)
    assert (identities / AUTHORITY_KEY).read_bytes() == before


@pytest.mark.parametrize("make", [server_context, client_context])
def test_a_folder_without_an_identity_is_one_message(make: object, tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="no identity can be read") as caught:
        make(tmp_path)  # type: ignore[operator]
    assert "vflsim keys init" in str(caught.value)
