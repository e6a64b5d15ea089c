"""A certificate authority for trials: real TLS, and nobody vouches for it.

Apart from `folders`, as this alone needs `cryptography`.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from pffl import files
from pffl.errors import MissingExtraError
from pffl.flower.deploy.names import Address

DAYS = 90
LOOPBACK = ("127.0.0.1", "::1")


def write_server(folder: Path, address: Address) -> bytes:
    """Write ca.crt, server.crt and server.key; return the authority's certificate.

    The authority's own key is not kept: it signs this one server, and no other.
    """
    x509, _, hashes, serialization = _library()
    authority, server = _key(), _key()
    name = _name("pffl trial authority")
    basic = x509.BasicConstraints(ca=True, path_length=0)
    root = (
        _builder(name, name, authority)
        .add_extension(basic, critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(authority, hashes.SHA384())
    )
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(
        authority.public_key()
    )
    leaf = (
        _builder(_name(address.host[:64]), name, server)
        .add_extension(x509.SubjectAlternativeName(_names(address)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]),
            critical=False,
        )
        .add_extension(identifier, critical=False)
        .sign(authority, hashes.SHA384())
    )
    pem = serialization.Encoding.PEM
    root_text: bytes = root.public_bytes(pem)
    (folder / "ca.crt").write_bytes(root_text)
    (folder / "server.crt").write_bytes(leaf.public_bytes(pem))
    private = server.private_bytes(
        pem,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    files.write(folder / "server.key", private, private=True)
    return root_text


def write_node_key(folder: Path) -> bytes:
    """Write a node's key (ECDSA P-384, in OpenSSH's form); return its public half."""
    *_, serialization = _library()
    key = _key()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    files.write(folder / "node_key", private, private=True)
    public: bytes = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    (folder / "node_key.pub").write_bytes(public + b"\n")
    return public + b"\n"


def _builder(subject: Any, issuer: Any, key: Any) -> Any:
    x509, *_ = _library()
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
            critical=False,
        )
    )


def _names(address: Address) -> list[Any]:
    """Names that the server may be called by: its own, and loopback."""
    x509, *_ = _library()
    hosts = dict.fromkeys([address.host, *LOOPBACK]) if address.is_ip else LOOPBACK
    names = [x509.IPAddress(ipaddress.ip_address(host)) for host in hosts]
    called = ["localhost"] if address.is_ip else [address.host, "localhost"]
    return [*names, *(x509.DNSName(host) for host in dict.fromkeys(called))]


def _usage(*, signs: bool) -> Any:
    x509, *_ = _library()
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> Any:
    x509, *_ = _library()
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])


def _key() -> Any:
    _, ec, *_ = _library()
    return ec.generate_private_key(ec.SECP384R1())


def _library() -> tuple[Any, Any, Any, Any]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise MissingExtraError("flower", "--trial-certificates") from error
    return x509, ec, hashes, serialization
