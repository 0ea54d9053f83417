"""A certificate for host names, and the authority that signs it; both are valid for a day."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = dt.timedelta(days=1)


@dataclasses.dataclass(frozen=True)
class Certificate:
    """PEM files: the authority that clients must trust, and the server's certificate and private key."""

    authority: Path
    certificate: Path
    key: Path


def make(folder: Path, hosts: Sequence[str]) -> Certificate:
    """Writes the files of a new authority and of its certificate for `hosts`."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name, names = _name("millrace tests"), x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    authority = _builder(name, name, authority_key).add_extension(x509.BasicConstraints(True, 0), critical=True)
    leaf = _builder(_name(hosts[0]), name, key).add_extension(names, critical=False)
    made = Certificate(folder / "authority.pem", folder / "certificate.pem", folder / "key.pem")
    pem = serialization.Encoding.PEM
    made.authority.write_bytes(authority.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    made.certificate.write_bytes(leaf.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    made.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return made


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.timezone.utc)
    return (
        x509.CertificateBuilder(issuer_name=issuer, subject_name=subject, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
    )
