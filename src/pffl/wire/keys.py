"""A site's keys: one to sign its answers with, one to agree on masks with others.

They are static, made by the site itself, and pinned by every other site in
`federation.json`; people compare fingerprints before they agree to it, by a way that
the server is no part of. `cryptography` is imported where it is used: it is an extra.
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
VERSION = 1
HEX = re.compile("[0-9a-f]{64}")  # 32 bytes


@dataclass(frozen=True)
class PublicKeys:
    """What others know of a site's keys, in hexadecimal.

    Attributes
    ----------
    sign
        Ed25519: by which its answers are checked.
    mask
        X25519: by which others agree with it on masks.
    """

    sign: str
    mask: str

    @classmethod
    def from_dict(cls, plain: object) -> PublicKeys:
        """Rebuild from the plain form."""
        if not isinstance(plain, Mapping) or set(plain) != {"sign", "mask"}:
            raise Malformed(
                "[wrong-keys] a site's keys are 'sign' and 'mask', and nothing else"
            )
        return cls(_hexadecimal(plain, "sign"), _hexadecimal(plain, "mask"))

    def as_dict(self) -> dict[str, str]:
        """Plain form, for a file."""
        return {"sign": self.sign, "mask": self.mask}

    @property
    def fingerprint(self) -> str:
        """128 bits of both keys, to be read out and compared.

        >>> PublicKeys("00" * 32, "11" * 32).fingerprint
        '4b77 2e22 d889 38d8 c751 4008 48b2 fa34'
        """
        content = bytes.fromhex(self.sign + self.mask)
        digest = hashlib.sha256(b"pffl fingerprint" + content).hexdigest()
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
    """A site's private keys, 32 bytes each: nobody else ever sees them."""

    sign_secret: bytes = field(repr=False)
    mask_secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> SiteKeys:
        """Make new keys."""
        signing = _primitives("ed25519").Ed25519PrivateKey.generate()
        masking = _primitives("x25519").X25519PrivateKey.generate()
        return cls(signing.private_bytes_raw(), masking.private_bytes_raw())

    @classmethod
    def read(cls, path: Path) -> SiteKeys:
        """Read the site's key file; refuse one that other accounts can read."""
        plain = _read(path, PRIVATE, {"sign", "mask"})
        mode = stat.S_IMODE(path.stat().st_mode)
        if os.name == "posix" and mode & 0o077:
            raise ArtefactError(
                f"[open-key-file] '{path}' holds the site's private keys, and other "
                f"accounts can use it (mode {mode:o}): make new ones with 'pffl site "
                "key --rotate'"
            )
        found = [bytes.fromhex(_hexadecimal(plain, name)) for name in ("sign", "mask")]
        return cls(*found)

    def write(self, path: Path) -> None:
        """Write the key file, for the site's own user alone."""
        secrets = {"sign": self.sign_secret.hex(), "mask": self.mask_secret.hex()}
        files.write(path, _text(PRIVATE, secrets), private=True)

    def write_public(self, path: Path, site: str) -> None:
        """Write what others are to have, signed: the keys belong together."""
        plain = {"site": site, **self.public.as_dict()}
        signature = self.sign(_text(PUBLIC, plain))
        files.write(path, _text(PUBLIC, {**plain, "signature": signature}))

    @cached_property
    def public(self) -> PublicKeys:
        """The public halves."""
        masking = _primitives("x25519").X25519PrivateKey
        mask = masking.from_private_bytes(self.mask_secret).public_key()
        sign = self._signing.public_key()
        return PublicKeys(sign.public_bytes_raw().hex(), mask.public_bytes_raw().hex())

    def sign(self, content: bytes) -> str:
        """Return the signature, in hexadecimal."""
        signature: bytes = self._signing.sign(content)
        return signature.hex()

    def shared(self, mask: str) -> bytes:
        """Return what only this site and the one with that public key know."""
        return _shared(self.mask_secret, mask)

    @cached_property
    def _signing(self) -> Any:
        signing = _primitives("ed25519").Ed25519PrivateKey
        return signing.from_private_bytes(self.sign_secret)


def read_public(path: Path) -> tuple[str, PublicKeys]:
    """Read what `SiteKeys.write_public` wrote: the site's name and its keys."""
    plain = _read(path, PUBLIC, {"site", "sign", "mask", "signature"})
    site, signature = plain["site"], plain.pop("signature")
    keys = PublicKeys(_hexadecimal(plain, "sign"), _hexadecimal(plain, "mask"))
    texts = isinstance(site, str) and isinstance(signature, str)
    if not texts or not keys.verify(_text(PUBLIC, plain), signature):
        raise ArtefactError(
            f"[changed-file] '{path}' was changed after its site had signed it"
        )
    return str(site), keys


def collect(folder: Path, sites: Sequence[str]) -> dict[str, PublicKeys]:
    """Read every site's public keys from the files of a folder, whatever their names.

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


@lru_cache(maxsize=4096)
def _shared(secret: bytes, mask: str) -> bytes:
    """Agree with another site; a key of small order, which agrees with all, is none."""
    x25519 = _primitives("x25519")
    own = x25519.X25519PrivateKey.from_private_bytes(secret)
    try:
        theirs = x25519.X25519PublicKey.from_public_bytes(bytes.fromhex(mask))
        found: bytes = own.exchange(theirs)
    except ValueError as error:
        raise Refused("[wrong-keys] a key of another site is not one") from error
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
