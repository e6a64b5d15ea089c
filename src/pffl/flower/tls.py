"""A certificate authority for trials: real TLS, and nobody vouches for it.

Apart from `deploy`, as this alone needs `cryptography`.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from pffl import files
from pffl.errors import MissingExtraError
from pffl.flower.address import Address

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
except ImportError as error:
    raise MissingExtraError("flower", "--trial-certificates") from error

DAYS = 90
LOOPBACK = ("127.0.0.1", "::1")
PEM = serialization.Encoding.PEM
OPEN_SSH = serialization.Encoding.OpenSSH
USES = (
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "encipher_only",
    "decipher_only",
)


def write_server(folder: Path, address: Address) -> bytes:
    """Write ca.crt, server.crt and server.key; return the authority's certificate.

    The authority's own key is not kept: it signs this one server, and no other.
    """
    authority, server = _key(), _key()
    name = _name("pffl trial authority")
    root = (
        _builder(name, name, authority, signs=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority, hashes.SHA384())
    )
    for_servers = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    leaf = (
        _builder(_name(address.host[:64]), name, server, signs=False)
        .add_extension(x509.SubjectAlternativeName(_names(address)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(for_servers, critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority, hashes.SHA384())
    )
    root_text: bytes = root.public_bytes(PEM)
    (folder / "ca.crt").write_bytes(root_text)
    (folder / "server.crt").write_bytes(leaf.public_bytes(PEM))
    _write_private(folder / "server.key", server, serialization.PrivateFormat.PKCS8)
    return root_text


def write_node_key(folder: Path) -> bytes:
    """Write a node's key (ECDSA P-384, in OpenSSH's form); return its public half."""
    key = _key()
    _write_private(folder / "node_key", key, serialization.PrivateFormat.OpenSSH)
    form = serialization.PublicFormat.OpenSSH
    public: bytes = key.public_key().public_bytes(OPEN_SSH, form) + b"\n"
    (folder / "node_key.pub").write_bytes(public)
    return public


def _write_private(path: Path, key: Any, form: Any) -> None:
    content = key.private_bytes(PEM, form, serialization.NoEncryption())
    files.write(path, content, private=True)


def _builder(subject: Any, issuer: Any, key: Any, *, signs: bool) -> Any:
    """Return what every certificate has; one that `signs` does nothing else."""
    now, public = datetime.datetime.now(datetime.UTC), key.public_key()
    usage = x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        **dict.fromkeys(USES, False),
    )
    own = x509.SubjectKeyIdentifier.from_public_key(public)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(own, critical=False)
        .add_extension(usage, critical=True)
    )


def _names(address: Address) -> list[Any]:
    """Names that the server may be called by: its own, and loopback."""
    hosts = dict.fromkeys([address.host, *LOOPBACK]) if address.is_ip else LOOPBACK
    names = [x509.IPAddress(ipaddress.ip_address(host)) for host in hosts]
    called = ["localhost"] if address.is_ip else [address.host, "localhost"]
    return [*names, *(x509.DNSName(host) for host in dict.fromkeys(called))]


def _name(text: str) -> Any:
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])


def _key() -> Any:
    return ec.generate_private_key(ec.SECP384R1())
