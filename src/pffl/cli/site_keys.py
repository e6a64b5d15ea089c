"""`pffl site key` and `agree`: whom a site takes part with, and under which keys."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pffl.cli import console
from pffl.cli.site import File

if TYPE_CHECKING:
    from pffl.site import Agreement, SiteConfig


def key(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="SITE", help="The site's folder, or a new one for its key."
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(help="The site's name, where there is no site.toml yet."),
    ] = None,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Make a new key; the old one is gone.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object.")
    ] = False,
) -> None:
    """Make the site's key, and show its public part and fingerprint.

    Example: pffl site key north --name "North Hospital"
    """
    from pffl import files
    from pffl.wire.keys import FILE, PUBLIC_FILE, SiteKeys

    folder, name, agreed = _place(path, name)
    place = folder / FILE
    new = rotate or not place.exists()
    if new:
        keys = SiteKeys.generate()
        files.folder(folder, private=True)
        keys.write(place)
    else:
        keys = SiteKeys.read(place)
    public = folder / PUBLIC_FILE
    keys.write_public(public, name)
    found = {"site": name, "new": new, **keys.public.as_dict()}
    found |= {"fingerprint": keys.public.fingerprint, "file": str(public)}
    if json:
        console.print_json(found)
        return
    what = "A new key" if new else "The key"
    console.show(f"{what} of site '{name}'; the private part stays in {place}")
    console.show(f"Fingerprint: {keys.public.fingerprint}")
    console.show(f"Send {public} to whoever deploys (pffl deploy --keys FOLDER).")
    console.show("Read the fingerprint to the other sites yourself, not by the server.")
    if agreed is not None and agreed.keys.get(name, keys.public) != keys.public:
        console.note(
            f"federation.json has another key of this site "
            f"({agreed.keys[name].fingerprint}): the site answers nothing until all "
            "sites have agreed to one with this key, and runs under way end; or put "
            f"the key that belongs to it back into {place}"
        )


def agree(
    path: File,
    federation: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FEDERATION.json]",
            help="What is proposed; default: the one in the site's folder.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Agree without being asked.")
    ] = False,
    other_sites: Annotated[
        bool,
        typer.Option("--other-sites", help="With --yes: also to another set of sites."),
    ] = False,
) -> None:
    """Show who takes part, the agreed run and what changed; put it in force.

    Example: pffl site agree north federation.json
    """
    from pffl.errors import UsageError
    from pffl.site import SiteConfig, consent

    config = SiteConfig.load(path)
    agreed = config.agreement(federation)
    consent.own_keys(config, agreed)
    before = consent.given(config.folder)
    _show(config, agreed, before)
    warning = consent.differencing(before, agreed, config.name)
    if warning:
        console.note(warning)
    if warning and before is not None and yes and not other_sites:
        raise UsageError(
            "[needs-confirmation] --yes does not agree to other sites: add "
            "--other-sites"
        )
    if not (yes or _asked()):
        console.show("Nothing was changed.")
        raise typer.Exit(1)
    consent.give(config, agreed)
    console.show(f"Agreed: {config.federation} is in force.")


def _place(path: Path, name: str | None) -> tuple[Path, str, Agreement | None]:
    """Return the folder of a site's key, its name, and what it agreed to, if any."""
    from pffl.errors import UsageError
    from pffl.site import SiteConfig
    from pffl.site.config import FILE

    file = path / FILE if path.suffix != ".toml" else path
    if not file.exists():
        if name is None:
            raise UsageError(
                f"[file-missing] '{file}' is not there: give the site's name with "
                "--name"
            )
        return path, name, None
    config = SiteConfig.load(file)
    if name not in (None, config.name):
        raise UsageError(
            f"[other-site] --name: '{file}' says that the site is '{config.name}'"
        )
    agreed = config.agreement() if config.federation.exists() else None
    return config.folder, config.name, agreed


def _show(config: SiteConfig, agreed: Agreement, before: Agreement | None) -> None:
    """Show who takes part, what is asked, and what is new about it."""
    from pffl.site import consent
    from pffl.site.terms import plan_of

    console.show(f"'{agreed.name}', with {len(agreed.sites)} sites:")
    for name in agreed.sites:
        printed = agreed.keys[name].fingerprint if agreed.keys else "no key"
        mine = "  (this site)" if name == config.name else ""
        console.show(f"  {name}: {printed}{mine}")
    if agreed.secure_sum:
        console.show(
            "Secure sums: a server and sites that keep to the protocol read only sums "
            "over all sites. Against others nothing but noise is promised."
        )
    else:
        console.show("No secure sums: whoever runs the server reads this site's sums.")
    for line in consent.lines(agreed):
        console.show(f"  {line}")
    if agreed.secure_sum and "privacy" in agreed.run:
        terms = plan_of(agreed).privacy.terms
        many = 0 if terms is None else terms.colluding
        console.show(
            "Noise with a budget: the sites share it, and it is enough as long as no "
            f"more than {many} of the {len(agreed.sites)} work together, with each "
            "other or with the server. What it costs this site's people: pffl site show"
        )
    if before is None:
        console.show("Nobody at this site has agreed to anything before.")
        return
    found = consent.changes(before, agreed)
    console.show("What changes:" if found else "Nothing changes.")
    for line in found:
        console.show(f"  {line}")


def _asked() -> bool:
    """Ask whoever sits there."""
    from pffl.errors import UsageError

    if not sys.stdin.isatty():
        raise UsageError(
            "[needs-confirmation] nobody is there to be asked: give --yes to agree"
        )
    return typer.confirm(
        "Did you compare the fingerprints with the other sites, and do you agree?"
    )
