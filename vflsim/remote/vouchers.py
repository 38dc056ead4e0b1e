"""Public keys for which their owners vouch, so that a server that relays them cannot put its own in their place."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vflsim.errors import VflsimError
from vflsim.remote.control import Voucher
from vflsim.remote.keys import AUTHORITY, CERTIFICATE, KEY, IdentityError, host_of
from vflsim.streams import party_name

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
        names = _names(certificate)
    except (OSError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound) as error:
        raise VoucherError(f"the public key of {who} is not signed by it for this run", remedy=_REMEDY) from error
    if names != [host_of(voucher.party)]:
        raise VoucherError(f"the public key of {who} is signed by {', '.join(names)}", remedy=_REMEDY)
    if not certificate.not_valid_before_utc <= datetime.datetime.now(datetime.UTC) <= certificate.not_valid_after_utc:
        raise VoucherError(f"the certificate of {who} is not valid today", remedy="make new identities")
    return key


def _names(certificate: Any) -> list[str]:
    from cryptography import x509

    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    names: list[str] = extension.value.get_values_for_type(x509.DNSName)
    return names
