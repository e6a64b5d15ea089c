"""Consent: what a site's administrator agreed to, and what a new proposal would change.

`federation.json` comes from whoever runs the server, who could name sites and keys of
their own. Under secure sums a site therefore answers under the very text that somebody
at the site has looked at, and whose fingerprints they compared with the other sites:
that is kept in `agreed.json`, for the site's own user alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pffl import files
from pffl.errors import ArtefactError, PFFLError, UsageError
from pffl.site.agreement import Agreement
from pffl.site.config import SiteConfig
from pffl.wire.keys import FILE as KEY
from pffl.wire.keys import SiteKeys

FILE = "agreed.json"
FORMAT = "pffl consent"
VERSION = 1


def given(folder: Path) -> Agreement | None:
    """Return what somebody at the site agreed to last; None before they did."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        plain = json.loads(files.read(path))
        if (plain["format"], plain["version"]) != (FORMAT, VERSION):
            raise ValueError("another format or version")
        return Agreement.from_dict(plain["federation"])
    except (PFFLError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArtefactError(
            f"[bad-consent] '{path}' is not what 'pffl site agree' wrote ({error}): "
            "remove it, and agree again"
        ) from error


def give(config: SiteConfig, agreed: Agreement) -> None:
    """Put an agreement in force at a site."""
    files.write(config.federation, agreed.text().encode())
    plain = {
        "format": FORMAT,
        "version": VERSION,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "federation": agreed.as_dict(),
    }
    content = json.dumps(plain, indent=1, ensure_ascii=False) + "\n"
    files.write(config.folder / FILE, content.encode(), private=True)


def check(config: SiteConfig, agreed: Agreement) -> None:
    """Refuse to answer under secure sums that nobody at the site agreed to.

    And without them, where what was agreed to has them: or whoever writes the file
    could end them.
    """
    last = given(config.folder)
    if not agreed.secure_sum and (last is None or not last.secure_sum):
        return
    if last is None or last.hash != agreed.hash:
        raise UsageError(
            f"[not-agreed] nobody at site '{config.name}' has agreed to "
            f"'{config.federation}' as "
            f"it is: look at it with 'pffl site agree {config.folder}'"
        )
    if agreed.secure_sum and agreed.floor < config.rules.floor:
        raise UsageError(
            f"[other-floor] the sites agree to a floor of {agreed.floor} people, and "
            f"the floor of '{config.name}' is {config.rules.floor} ('floor' in "
            "site.toml): whoever deploys must raise the floor of federation.json"
        )


def own_keys(config: SiteConfig, agreed: Agreement) -> SiteKeys | None:
    """Return the site's keys, if there are any; refuse others than were agreed on."""
    path = config.folder / KEY
    keys = SiteKeys.read(path) if path.exists() else None
    if not agreed.keys:
        return keys
    if keys is None:
        raise UsageError(
            f"[missing-key] the sites agree on a key of '{config.name}', and '{path}' "
            "is not there: put it back, or make one with 'pffl site key "
            f"{config.folder}'"
        )
    theirs = agreed.keys[config.name]
    if theirs != keys.public:
        raise UsageError(
            f"[other-key] the sites agree on another key of '{config.name}' "
            f"({theirs.fingerprint}) than '{path}' has ({keys.public.fingerprint}): "
            f"whoever deploys needs '{path}.pub', and all sites must agree anew"
        )
    return keys


def changes(before: Agreement, after: Agreement) -> list[str]:
    """Return a sentence for each thing that an agreement would change."""
    old, new = before.as_dict(), after.as_dict()
    found = [f"site '{name}' joins" for name in after.sites if name not in before.sites]
    found += [
        f"site '{name}' leaves" for name in before.sites if name not in after.sites
    ]
    stay = [name for name in before.sites if name in after.sites]
    if stay != [name for name in after.sites if name in before.sites]:
        found.append("the sites stand in another order")
    found += _key_changes(before, after, stay)
    if before.secure_sum != after.secure_sum:
        words = "begin" if after.secure_sum else "END: each site's sums can be read"
        found.append(f"secure sums {words}")
    if before.floor != after.floor:
        found.append(f"the floor: {before.floor} becomes {after.floor} people")
    found += _run_changes(before.run, after.run)
    told = {"sites", "keys", "secure_sum", "floor", "run"}
    names = [name for name in new if name not in told and old.get(name) != new[name]]
    return found + [f"'{name}' is another" for name in names]


def differencing(before: Agreement | None, after: Agreement, name: str) -> str:
    """Say what can be read from totals over two sets of sites; nothing of one set."""
    if not after.secure_sum:
        return ""
    if before is None:
        return (
            f"If the other sites have asked the same without '{name}', the difference "
            "of both totals is about your rows alone, and no mask hides it: ask them."
        )
    apart = sorted(set(before.sites) ^ set(after.sites))
    if not before.secure_sum or not apart:
        return ""
    who = " and ".join(f"'{site}'" for site in apart)
    return (
        f"The sites are others than before: whoever sees totals of both, the server "
        f"included, can subtract them, and what is left is about the rows of {who} "
        "alone; no mask hides it. Agree only if that may be known."
    )


def lines(agreed: Agreement) -> list[str]:
    """Return the agreed run in words, a line for each section."""
    found = []
    for section, values in agreed.run.items():
        said = [f"{key} {value}" for key, value in _plain(values).items()]
        found.append(f"{section}: {', '.join(said) or 'as pffl chooses'}")
    return found


def _key_changes(before: Agreement, after: Agreement, stay: list[str]) -> list[str]:
    if bool(before.keys) != bool(after.keys):
        return ["sites' keys are named now" if after.keys else "NO keys are named now"]
    return [
        f"site '{name}' has a NEW KEY: {after.keys[name].fingerprint}, and had "
        f"{before.keys[name].fingerprint}"
        for name in stay
        if after.keys and after.keys[name] != before.keys[name]
    ]


def _run_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    found = []
    for section in dict.fromkeys([*before, *after]):
        old, new = _plain(before.get(section, {})), _plain(after.get(section, {}))
        found += [
            f"{section}: {key} {old.get(key, 'not given')} becomes "
            f"{new.get(key, 'not given')}"
            for key in dict.fromkeys([*old, *new])
            if old.get(key) != new.get(key)
        ]
    return found


def _plain(values: Any) -> dict[str, Any]:
    """Return a section as one table; constraints may be a list of them."""
    if isinstance(values, Mapping):
        return dict(values)
    tables = enumerate(map(_plain, values), start=1)
    return {f"{key} ({i})": value for i, one in tables for key, value in one.items()}
