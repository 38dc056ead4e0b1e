"""Identities: a local certificate authority, and a key and certificate for every party.

``cryptography`` makes them, and the standard library's ``ssl`` uses them: TLS 1.3, with certificates on both sides.
"""

from __future__ import annotations

import datetime
import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from vflsim.errors import VflsimError, of_extra
from vflsim.remote.control import Voucher
from vflsim.streams import SERVER, party_name

AUTHORITY, AUTHORITY_KEY = "authority.pem", "authority.key"
CERTIFICATE, KEY = "certificate.pem", "key.pem"
DAYS = 30
"""How long certificates are valid unless something else is asked for."""
_DOMAIN = ".parties.vflsim"


class IdentityError(VflsimError):
    """An identity cannot be made or read."""


def host_of(party: int) -> str:
    """Return the name in a party's certificate. Example: ``host_of(3)`` is ``"client-3.parties.vflsim"``."""
    return party_name(party) + _DOMAIN


def make_identities(folder: Path, clients: int, days: int = DAYS) -> list[Path]:
    """Make an authority in a new ``folder``, and in it a folder for the server and each of ``clients`` clients.

    A party needs its own folder alone: its key, its certificate and the authority's certificate. Whoever has
    ``authority.key`` can make more parties. Keys are readable by their owner only. Raises ``IdentityError`` if the
    folder exists or cannot be written.

    Example::

        make_identities(Path("identities"), clients=2)
        # identities/server, identities/client-1, identities/client-2
    """
    with of_extra("live", "a live run"):
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    begins = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)  # clocks differ a little
    ends = begins + datetime.timedelta(days=days)

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def builder(name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder(subject_name=named(name), issuer_name=named("vflsim authority"))
        made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
        made = made.not_valid_before(begins).not_valid_after(ends)
        return made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)

    def usage(signs_certificates: bool) -> x509.KeyUsage:
        return x509.KeyUsage(
            digital_signature=not signs_certificates, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
            content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
            encipher_only=False, decipher_only=False,
        )  # fmt: skip

    def secret(key: ec.EllipticCurvePrivateKey) -> bytes:
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    authority = ec.generate_private_key(ec.SECP256R1())
    root = builder("vflsim authority", authority)
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    root = root.add_extension(usage(signs_certificates=True), critical=True)
    root_certificate = root.sign(authority, hashes.SHA256()).public_bytes(Encoding.PEM)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    made: list[Path] = []
    try:
        folder.mkdir(parents=True)
        _write(folder / AUTHORITY, root_certificate)
        _write(folder / AUTHORITY_KEY, secret(authority))
        for party in range(SERVER, clients + 1):
            key = ec.generate_private_key(ec.SECP256R1())
            its = builder(party_name(party), key)
            its = its.add_extension(x509.SubjectAlternativeName([x509.DNSName(host_of(party))]), critical=False)
            its = its.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            its = its.add_extension(usage(signs_certificates=False), critical=True)
            purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            its = its.add_extension(x509.ExtendedKeyUsage(purposes), critical=False).add_extension(issuer, False)
            place = folder / party_name(party)
            place.mkdir(mode=0o700)
            _write(place / AUTHORITY, root_certificate)
            _write(place / CERTIFICATE, its.sign(authority, hashes.SHA256()).public_bytes(Encoding.PEM))
            _write(place / KEY, secret(key))
            made.append(place)
    except FileExistsError as error:
        raise IdentityError("the folder exists", str(folder), "a new folder", "choose another, or move it") from error
    except OSError as error:
        raise IdentityError(f"cannot be written: {error.strerror or error}", str(folder)) from error
    return made


def server_context(identity: Path) -> ssl.SSLContext:
    """Return the TLS settings of the server: clients must show a certificate of the same authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # connections are long, and never resumed
    return _filled(context, identity)


def client_context(identity: Path) -> ssl.SSLContext:
    """Return the TLS settings of a client: connect with ``server_hostname=host_of(SERVER)``."""
    return _filled(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), identity)


def party_of(certificate: object) -> int | None:
    """Return the party that a verified certificate names, as ``SSLSocket.getpeercert`` gives it; None for no party."""
    names = certificate.get("subjectAltName", ()) if isinstance(certificate, dict) else ()
    hosts = [value for kind, value in names if kind == "DNS"]
    if len(hosts) != 1 or not hosts[0].endswith(_DOMAIN):
        return None
    name = hosts[0].removesuffix(_DOMAIN)
    if name == party_name(SERVER):
        return SERVER
    number = name.removeprefix("client-")
    known = number.isascii() and number.isdecimal() and len(number) < 8 and int(number) > SERVER
    return int(number) if known and party_name(int(number)) == name else None


def _filled(context: ssl.SSLContext, identity: Path) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(identity / CERTIFICATE, identity / KEY)
        context.load_verify_locations(identity / AUTHORITY)
    except (OSError, ssl.SSLError) as error:
        allowed = f"a folder with {CERTIFICATE}, {KEY} and {AUTHORITY}"
        what = f"no identity can be read: {error.strerror or error}"
        raise IdentityError(what, str(identity), allowed, "make one with vflsim keys init") from error
    return context


def _write(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)


_REMEDY = "do not trust this server: somebody has put another key in its place"


class VoucherError(VflsimError):
    """A public key that its owner has not signed for this run."""


@dataclass(frozen=True, slots=True)
class VouchedRun:
    """What a voucher is for: a key of one run vouches for nothing in another."""

    scenario: str
    protocol: str
    seed: int

    def words(self, party: int, key: bytes) -> bytes:
        """Return what the owner of a key signs."""
        return f"vflsim/live/1/{self.scenario}/{self.protocol}/{self.seed}/{party}/{key.hex()}".encode()


def vouch(identity: Path, run: VouchedRun, party: int, key: bytes) -> Voucher:
    """Return the voucher of ``party`` for its public key: a signature by its identity, and its certificate.

    Raises ``IdentityError`` if the identity cannot be read.
    """
    with of_extra("live", "a live run"):
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

    try:
        secret = serialization.load_pem_private_key((identity / KEY).read_bytes(), password=None)
        certificate = (identity / CERTIFICATE).read_text("ascii")
    except (OSError, ValueError, TypeError) as error:
        raise IdentityError(f"no key can be read: {error}", str(identity)) from error
    if not isinstance(secret, ec.EllipticCurvePrivateKey):
        raise IdentityError("its key signs by another scheme", str(identity), "a key of vflsim keys init")
    signature = secret.sign(run.words(party, key), ec.ECDSA(hashes.SHA256()))
    return Voucher(party=party, key=key.hex(), signature=signature.hex(), certificate=certificate)


def checked(voucher: Voucher, identity: Path, run: VouchedRun) -> bytes:
    """Return the public key that a voucher is for.

    Raises ``VoucherError`` unless the authority of ``identity`` has certified the voucher's party, today, and that
    party has signed the key for this run.
    """
    with of_extra("live", "a live run"):
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

    who = party_name(voucher.party)
    try:
        key, signature = bytes.fromhex(voucher.key), bytes.fromhex(voucher.signature)
        authority = x509.load_pem_x509_certificate((identity / AUTHORITY).read_bytes())
        certificate = x509.load_pem_x509_certificate(voucher.certificate.encode("ascii"))
        certificate.verify_directly_issued_by(authority)
        public = certificate.public_key()
        if not isinstance(public, ec.EllipticCurvePublicKey):
            raise VoucherError(f"the certificate of {who} has a key of another scheme")
        public.verify(signature, run.words(voucher.party, key), ec.ECDSA(hashes.SHA256()))
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = extension.value.get_values_for_type(x509.DNSName)
    except (OSError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound) as error:
        raise VoucherError(f"the public key of {who} is not signed by it for this run", remedy=_REMEDY) from error
    if names != [host_of(voucher.party)]:
        raise VoucherError(f"the public key of {who} is signed by {', '.join(names)}", remedy=_REMEDY)
    if not certificate.not_valid_before_utc <= datetime.datetime.now(datetime.UTC) <= certificate.not_valid_after_utc:
        raise VoucherError(f"the certificate of {who} is not valid today", remedy="make new identities")
    return key
