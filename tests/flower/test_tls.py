"""The trial authority: names, times, uses, and a handshake with Python's own TLS."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest

from tests.inside import Address, tls

x509 = pytest.importorskip("cryptography.x509", reason="cryptography is missing")


def talk(folder: Path, authority: Path, name: str) -> str:
    """Shake hands over loopback as `name`; return the version of TLS."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    client = ssl.create_default_context(cafile=str(authority))
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                server.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            raw = socket.create_connection(listening.getsockname(), timeout=10)
            with raw, client.wrap_socket(raw, server_hostname=name) as secure:
                return str(secure.version())
        finally:
            thread.join()


@pytest.mark.parametrize("host", ["10.1.2.3", "fl.example.org", "fd00::1"])
def test_handshake_by_every_name(host: str, tmp_path: Path) -> None:
    tls.write_server(tmp_path, Address(host, 8443))
    for name in (host, "127.0.0.1", "localhost"):
        assert talk(tmp_path, tmp_path / "ca.crt", name) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        talk(tmp_path, tmp_path / "ca.crt", "other.example.org")


def test_another_authority_is_not_believed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        tls.write_server(tmp_path / name, Address("127.0.0.1", 8443))
    with pytest.raises(ssl.SSLCertVerificationError):
        talk(tmp_path / "a", tmp_path / "b" / "ca.crt", "127.0.0.1")


def test_names_uses_and_the_key(tmp_path: Path) -> None:
    root = tls.write_server(tmp_path, Address("10.1.2.3", 8443))
    leaf = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert ipaddress.ip_address("10.1.2.3") in names.get_values_for_type(x509.IPAddress)
    basic = leaf.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not basic.ca
    assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc).days == 90
    assert stat.S_IMODE((tmp_path / "server.key").stat().st_mode) == 0o600
    assert (tmp_path / "ca.crt").read_bytes() == root
    assert {path.name for path in tmp_path.iterdir()} == {
        "ca.crt",
        "server.crt",
        "server.key",
    }


def test_node_keys_are_what_flower_loads(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        load_ssh_private_key,
        load_ssh_public_key,
    )

    public = tls.write_node_key(tmp_path)
    private = load_ssh_private_key((tmp_path / "node_key").read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(private.curve, ec.SECP384R1)
    assert load_ssh_public_key(public) == private.public_key()
    assert (tmp_path / "node_key.pub").read_bytes() == public
    assert stat.S_IMODE((tmp_path / "node_key").stat().st_mode) == 0o600
