"""A site's key to sign its answers with, and its secret of one run to mask them with.

The first stays: the site makes it, and every other site pins its public part in
`federation.json`; people compare fingerprints before they agree to it, by a way that
the server is no part of. The second is drawn for a run, announced in a signed answer,
and gone with the run: what was said under masks stays hidden from whoever gets the
site's key later. `cryptography` is imported where it is used: it is an extra.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pffl import files
from pffl.errors import (
    ArtefactError,
    Malformed,
    MissingExtraError,
    Problems,
    Refused,
    UsageError,
)

FILE = "site_key"
PUBLIC_FILE = "site_key.pub"
PRIVATE = "pffl site key"
PUBLIC = "pffl public site key"
VERSION = 2
HEX = re.compile("[0-9a-f]{64}")  # 32 bytes


@dataclass(frozen=True)
class PublicKeys:
    """What others know of a site's key, in hexadecimal.

    Attributes
    ----------
    sign
        Ed25519: by which its answers are checked.
    """

    sign: str

    @classmethod
    def from_dict(cls, plain: object) -> PublicKeys:
        """Rebuild from the plain form."""
        if not isinstance(plain, Mapping) or set(plain) != {"sign"}:
            raise Malformed("[wrong-keys] a site's key is 'sign', and nothing else")
        return cls(_hexadecimal(plain, "sign"))

    def as_dict(self) -> dict[str, str]:
        """Plain form, for a file."""
        return {"sign": self.sign}

    @property
    def fingerprint(self) -> str:
        """128 bits of its hash, to be read out and compared.

        >>> PublicKeys("00" * 32).fingerprint
        'bc81 601e bf8b 2664 1ac1 982f a183 b162'
        """
        content = b"pffl fingerprint" + bytes.fromhex(self.sign)
        digest = hashlib.sha256(content).hexdigest()
        return " ".join(digest[i : i + 4] for i in range(0, 32, 4))

    def verify(self, content: bytes, signature: str) -> bool:
        """Whether the site has signed this."""
        ed25519 = _primitives("ed25519")
        from cryptography.exceptions import InvalidSignature

        try:
            key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.sign))
            key.verify(bytes.fromhex(signature), content)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class SiteKeys:
    """A site's private key, 32 bytes: nobody else ever sees it."""

    sign_secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> SiteKeys:
        """Make a new key."""
        signing = _primitives("ed25519").Ed25519PrivateKey.generate()
        return cls(signing.private_bytes_raw())

    @classmethod
    def read(cls, path: Path) -> SiteKeys:
        """Read the site's key file; refuse one that other accounts can read."""
        plain = _read(path, PRIVATE, {"sign"})
        mode = stat.S_IMODE(path.stat().st_mode)
        if os.name == "posix" and mode & 0o077:
            raise ArtefactError(
                f"[open-key-file] '{path}' holds the site's private key, and other "
                f"accounts can use it (mode {mode:o}): make a new one with 'pffl site "
                "key --rotate'"
            )
        return cls(bytes.fromhex(_hexadecimal(plain, "sign")))

    def write(self, path: Path) -> None:
        """Write the key file, for the site's own user alone."""
        text = _text(PRIVATE, {"sign": self.sign_secret.hex()})
        files.write(path, text, private=True)

    def write_public(self, path: Path, site: str) -> None:
        """Write what others are to have, signed: name and key belong together."""
        plain = {"site": site, **self.public.as_dict()}
        signature = self.sign(_text(PUBLIC, plain))
        files.write(path, _text(PUBLIC, {**plain, "signature": signature}))

    @cached_property
    def public(self) -> PublicKeys:
        """The public half."""
        return PublicKeys(self._signing.public_key().public_bytes_raw().hex())

    def sign(self, content: bytes) -> str:
        """Return the signature, in hexadecimal."""
        signature: bytes = self._signing.sign(content)
        return signature.hex()

    @cached_property
    def _signing(self) -> Any:
        signing = _primitives("ed25519").Ed25519PrivateKey
        return signing.from_private_bytes(self.sign_secret)


def read_public(path: Path) -> tuple[str, PublicKeys]:
    """Read what `SiteKeys.write_public` wrote: the site's name and its key."""
    plain = _read(path, PUBLIC, {"site", "sign", "signature"})
    site, signature = plain["site"], plain.pop("signature")
    keys = PublicKeys(_hexadecimal(plain, "sign"))
    texts = isinstance(site, str) and isinstance(signature, str)
    if not texts or not keys.verify(_text(PUBLIC, plain), signature):
        raise ArtefactError(
            f"[changed-file] '{path}' was changed after its site had signed it"
        )
    return str(site), keys


def collect(folder: Path, sites: Sequence[str]) -> dict[str, PublicKeys]:
    """Read every site's public key from the files of a folder, whatever their names.

    Each must be there once, and nobody else's.
    """
    if not folder.is_dir():
        raise UsageError(
            f"[file-missing] '{folder}' is no folder with the sites' public keys"
        )
    found: dict[str, PublicKeys] = {}
    with Problems(str(folder), UsageError) as problems:
        for path in sorted(folder.rglob("*.pub")):
            site, keys = read_public(path)
            if site in found:
                problems.add(
                    f"[repeated-key] '{path.name}' is a second key of site '{site}'"
                )
            elif site not in sites:
                problems.add(
                    f"[unknown-site] '{path.name}' is of '{site}', which is no site "
                    "here"
                )
            found[site] = keys
        for site in sites:
            if site not in found:
                problems.add(f"[missing-key] no public key of site '{site}'")
    return {site: found[site] for site in sites}


def announced(secret: bytes) -> bytes:
    """Return what others are told of a run's secret of 32 bytes (X25519)."""
    own = _primitives("x25519").X25519PrivateKey.from_private_bytes(secret)
    found: bytes = own.public_key().public_bytes_raw()
    return found


@lru_cache(maxsize=4096)
def shared(secret: bytes, theirs: bytes) -> bytes:
    """Agree with another site; a key of small order, which agrees with all, is none."""
    x25519 = _primitives("x25519")
    own = x25519.X25519PrivateKey.from_private_bytes(secret)
    try:
        found: bytes = own.exchange(x25519.X25519PublicKey.from_public_bytes(theirs))
    except ValueError as error:  # the shared secret is zero, or it is no key at all
        raise Refused(
            "[wrong-keys] another site's key of this run agrees with everybody"
        ) from error
    return found


def _primitives(name: str) -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
    except ImportError as error:
        raise MissingExtraError("flower", "signing and masking") from error
    return {"ed25519": ed25519, "x25519": x25519}[name]


def _text(form: str, plain: Mapping[str, str]) -> bytes:
    whole = {"format": form, "version": VERSION, **plain}
    return (json.dumps(whole, indent=1, ensure_ascii=False) + "\n").encode()


def _read(path: Path, form: str, names: set[str]) -> dict[str, Any]:
    """Read one of our key files, without its format and version."""
    try:
        plain = json.loads(files.read(path, largest=1 << 16))
    except ValueError:
        plain = None
    found = plain if isinstance(plain, dict) else {}
    head = (found.pop("format", None), found.pop("version", None))
    if head != (form, VERSION) or set(found) != names:
        raise ArtefactError(
            f"[other-format] '{path}' is not a {form} of version {VERSION}"
        )
    return found


def _hexadecimal(plain: Mapping[str, Any], name: str) -> str:
    value = plain[name]
    if not isinstance(value, str) or not HEX.fullmatch(value):
        raise Malformed(f"[wrong-keys] '{name}' is no key of 32 bytes in hexadecimal")
    return value
