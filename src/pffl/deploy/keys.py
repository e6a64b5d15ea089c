"""A site's key, and its secret of one run.

The first stays: the site makes it, and every other site pins its public part in
`federation.json`; people compare fingerprints before they join, by a way that the
server is no part of. The second is drawn for a run, announced in a signed answer, and
gone with the run: what was said under masks stays hidden from whoever gets the site's
key later. `cryptography` is imported where it is used: it is an extra.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pffl import files
from pffl.errors import ArtefactError, Malformed, MissingExtraError, Refused, UsageError

FILE = "site.key"
FORMAT = "pffl site key 3"
LINE = "pffl-site-3"  # how the line begins that a site sends to the coordinator
HEX = re.compile("[0-9a-f]{64}")  # 32 bytes
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")  # also a folder's


@dataclass(frozen=True)
class PublicKey:
    """What others know of a site: Ed25519, in hexadecimal, by which it signs."""

    sign: str

    def __post_init__(self) -> None:
        if not (isinstance(self.sign, str) and HEX.fullmatch(self.sign)):
            raise Malformed("wrong-keys:publickey")

    @property
    def fingerprint(self) -> str:
        """128 bits of its hash, to be read out and compared.

        >>> PublicKey("00" * 32).fingerprint
        'bc81 601e bf8b 2664 1ac1 982f a183 b162'
        """
        content = b"pffl fingerprint" + bytes.fromhex(self.sign)
        digest = hashlib.sha256(content).hexdigest()
        return " ".join(digest[i : i + 4] for i in range(0, 32, 4))

    def verify(self, content: bytes, signature: str) -> bool:
        """Whether the site has signed this."""
        public = primitives("ed25519").Ed25519PublicKey
        from cryptography.exceptions import InvalidSignature

        try:
            key = public.from_public_bytes(bytes.fromhex(self.sign))
            key.verify(bytes.fromhex(signature), content)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class SiteKey:
    """A site's private key: no one else ever sees it.

    Attributes
    ----------
    secret
        Ed25519, 32 bytes.
    split
        Key of the hash that says in which split a row is, for the life of the table.
    """

    secret: bytes = field(repr=False)
    split: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> SiteKey:
        """Make a new key."""
        signing = primitives("ed25519").Ed25519PrivateKey.generate()
        return cls(signing.private_bytes_raw(), secrets.token_bytes(32))

    @classmethod
    def read(cls, path: Path) -> SiteKey:
        """Read a site's key file; refuse one that other accounts can read."""
        try:
            plain = json.loads(files.read(path, largest=1 << 16))
            key = cls(bytes.fromhex(plain["secret"]), bytes.fromhex(plain["split"]))
            if (plain["format"], len(key.secret), len(key.split)) != (FORMAT, 32, 32):
                raise ValueError
        except (ValueError, KeyError, TypeError) as error:
            raise ArtefactError(
                "other-format:read-2", path=path, format=FORMAT
            ) from error
        mode = stat.S_IMODE(path.stat().st_mode)
        if os.name == "posix" and mode & 0o077:
            raise ArtefactError("open-key-file", path=path, mode=mode)
        return key

    def write(self, path: Path) -> None:
        """Write the key file, for the site's own account alone."""
        plain = {"secret": self.secret.hex(), "split": self.split.hex()}
        plain["format"] = FORMAT
        files.write(path, json.dumps(plain).encode(), private=True)

    @cached_property
    def public(self) -> PublicKey:
        """The public half."""
        return PublicKey(self._signing.public_key().public_bytes_raw().hex())

    def sign(self, content: bytes) -> str:
        """Return the signature, in hexadecimal."""
        return str(self._signing.sign(content).hex())

    @cached_property
    def _signing(self) -> Any:
        signing = primitives("ed25519").Ed25519PrivateKey
        return signing.from_private_bytes(self.secret)


@dataclass(frozen=True)
class SiteLine:
    """The one line that a site sends to the coordinator: name, keys, signed."""

    name: str
    key: PublicKey
    node: str  # public key of its Flower node, in OpenSSH's form

    def text(self, own: SiteKey) -> str:
        """Return the line."""
        return f"{self._content} {own.sign(self._content.encode())}"

    @property
    def _content(self) -> str:
        return f"{LINE} {self.name} {self.key.sign} {self.node}"

    @classmethod
    def parse(cls, text: str) -> SiteLine:
        """Read a line; refuse one that was changed after its site had signed it."""
        parts = text.split()
        if len(parts) != 6 or parts[0] != LINE or not NAME.fullmatch(parts[1]):
            raise UsageError("wrong-line", line=LINE, text=text[:60])
        found = cls(parts[1], PublicKey(parts[2]), " ".join(parts[3:5]))
        if not found.key.verify(found._content.encode(), parts[5]):
            raise UsageError("changed-line", name=found.name)
        return found


def read_lines(text: str) -> dict[str, SiteLine]:
    """Read the lines of all sites, in order; each site and each key once."""
    found: dict[str, SiteLine] = {}
    for line in filter(str.strip, text.splitlines()):
        one = SiteLine.parse(line)
        if one.name in found or one.key in [other.key for other in found.values()]:
            raise UsageError("repeated-key:read-lines", name=one.name)
        found[one.name] = one
    return found


def node_key() -> tuple[bytes, str]:
    """Make a key for a Flower node (ECDSA P-384): its file, and its public part."""
    ec = primitives("ec")
    from cryptography.hazmat.primitives import serialization as serial

    key, none = ec.generate_private_key(ec.SECP384R1()), serial.NoEncryption()
    form = (serial.Encoding.PEM, serial.PrivateFormat.OpenSSH)
    told = (serial.Encoding.OpenSSH, serial.PublicFormat.OpenSSH)
    public: bytes = key.public_key().public_bytes(*told)
    return key.private_bytes(*form, none), public.decode()


def announced(secret: bytes) -> bytes:
    """Return the public part of a run's secret of 32 bytes (X25519)."""
    own: Any = primitives("x25519").X25519PrivateKey.from_private_bytes(secret)
    return bytes(own.public_key().public_bytes_raw())


@lru_cache(maxsize=4096)
def shared(secret: bytes, theirs: bytes) -> bytes:
    """Return what two sites share, each from its secret and the other's key."""
    x25519 = primitives("x25519")
    own = x25519.X25519PrivateKey.from_private_bytes(secret)
    try:
        found: bytes = own.exchange(x25519.X25519PublicKey.from_public_bytes(theirs))
    except ValueError as error:  # a key that agrees with everybody
        raise Refused("wrong-keys:shared") from error
    return found


def primitives(name: str) -> Any:
    """Return a module of `cryptography`, which is an extra."""
    from importlib import import_module

    try:
        return import_module(f"cryptography.hazmat.primitives.asymmetric.{name}")
    except ImportError as error:
        raise MissingExtraError("flower", "a secure sum") from error
