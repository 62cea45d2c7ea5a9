"""A certificate authority for trials, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Exists, Invalid
from sarit.core.extras import require

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_SKEW: Final = datetime.timedelta(minutes=5)  # of the clocks of a few machines


def make_certificates(directory: Path, hosts: Sequence[str], days: int) -> dict[str, Path]:
    """Write a CA and the certificates of a server and a client.  Returns the files.

    `hosts`: of the server; none is this machine.  Raises Exists (a file is there), Invalid (no library, no host)."""
    require("tls", "a certificate authority")
    files = {
        "ca": directory / "ca.pem",
        "ca key": directory / "ca-key.pem",
        "server": directory / "server.pem",
        "server key": directory / "server-key.pem",
        "client": directory / "client.pem",
        "client key": directory / "client-key.pem",
    }
    for path in files.values():
        if path.exists():
            raise Exists(f"{path} is there: choose another directory, or delete it")
    names = [*(hosts or (socket.gethostname(),)), *(name for name in _LOCAL if name not in hosts)]
    ca, ca_key = _certificate("Sarit development CA", days)
    directory.mkdir(parents=True, exist_ok=True)
    _write(files["ca"], files["ca key"], ca, ca_key)
    for who, common, alternative in (("server", "sarit", names), ("client", "sarit client", [])):
        _write(files[who], files[f"{who} key"], *_certificate(common, days, alternative, (ca, ca_key)))
    return files


def _certificate(
    common: str, days: int, names: Sequence[str] = (),
    issuer: tuple[x509.Certificate, EllipticCurvePrivateKey] | None = None,
) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:  # fmt: skip
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
    now = datetime.datetime.now(datetime.UTC)
    signer = issuer[1] if issuer is not None else key
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(_usage(signs=issuer is None), critical=True)
    )
    if names:
        made = made.add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
    if issuer is not None:
        # A process of a cluster is a server for some, and a client of others.
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if names else [])]
        made = made.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    return made.sign(signer, hashes.SHA256()), key


def _usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError:
        raise Invalid(f"{name!r} is neither a name nor an address of a host") from None


def _write(path: Path, key_path: Path, certificate: x509.Certificate, key: EllipticCurvePrivateKey) -> None:
    from cryptography.hazmat.primitives import serialization

    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with os.fdopen(os.open(key_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
