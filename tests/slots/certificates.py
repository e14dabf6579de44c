"""Certificates for servers on loopback: an authority, and one certificate with its key that the authority signed."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make(directory: Path, addresses: list[str]) -> Mapping[str, Path]:
    """Files ``ca``, ``certificate`` and ``key``, for servers on these IP addresses."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _sign("rota tests", ca_key.public_key(), "rota tests", ca_key, x509.BasicConstraints(True, None))
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName(
        [x509.IPAddress(ip_network(f"{address}/32").network_address) for address in addresses]
    )
    certificate = _sign("server", key.public_key(), "rota tests", ca_key, names)
    files = {name: directory / f"{name}.pem" for name in ("ca", "certificate", "key")}
    files["ca"].write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    files["certificate"].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files["key"].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def _sign(
    name: str,
    key: ec.EllipticCurvePublicKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    )
    return builder.sign(issuer_key, hashes.SHA256())
