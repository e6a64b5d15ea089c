"""`pffl site show`: what the agreed run asks of a site, and what the site allows."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pffl.cli import console
from pffl.cli.site import File

if TYPE_CHECKING:
    from pffl.site import Site
    from pffl.site.agreement import Agreement
    from pffl.site.outlook import NoiseOutlook

MASKED = (
    "Answers are added under masks: the server reads what all sites have together.",
    "That holds for a server and sites that keep to the protocol. Of others "
    "nothing is promised without noise with a budget ([privacy]).",
)
PLAIN = (
    "No secure sums: the server reads this site's own sums, and the site cannot tell "
    "whether it asks what the run needs.",
)
NO_PROOF = (
    "Sums are no proof of privacy: from enough of them rows can be computed. What "
    "holds are the floor and the limits of site.toml."
)


def show(
    path: File,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object.")
    ] = False,
) -> None:
    """Say what the agreed run will ask, and what the site allows.

    Example: pffl site show .
    """
    from pffl.site import Site, SiteConfig
    from pffl.site.outlook import NoiseOutlook
    from pffl.site.terms import plan_of

    config = SiteConfig.load(path)
    agreed, site = config.agreement(), Site.open(path)
    noise = None
    if "privacy" in agreed.run:
        noise = NoiseOutlook.of(plan_of(agreed), agreed)
    if noise is not None:
        _show_noise(site, agreed, noise, json=json)
        return
    if json:
        console.print_json({"run": dict(agreed.run), "limits": asdict(site.rules)})
        return
    _show_run(site, agreed)
    rules = site.rules
    console.show(
        f"A run may ask {rules.queries:,} queries about models within a norm of "
        f"{rules.radius:g}; {rules.runs:,} runs are answered in all ('queries', "
        "'radius' and 'runs' in site.toml)."
    )
    for line in (*(MASKED if agreed.secure_sum else PLAIN), NO_PROOF):
        console.show(line)


def _show_run(site: Site, agreed: Agreement) -> None:
    from pffl.site.consent import lines

    others = [name for name in agreed.sites if name != site.name]
    console.show(f"site '{site.name}' of '{agreed.name}', with {', '.join(others)}")
    console.show("The agreed run:")
    for line in lines(agreed):
        console.show(f"  {line}")


def _show_noise(
    site: Site, agreed: Agreement, noise: NoiseOutlook, *, json: bool
) -> None:
    """Say what a run with noise releases, and what the site's people pay for it."""
    account, rules = site.releases.account, site.rules
    spent = 0.0 if account is None else account.spent
    before = 0.0 if account is None else account.spent_epsilon()
    after = noise.cost(rules.delta, spent)
    if json:
        plain = {"spent": before, "with_the_run": after, "epsilon": rules.epsilon}
        console.print_json({"releases": noise.lines, **plain, "delta": rules.delta})
        return
    _show_run(site, agreed)
    for line in (*noise.lines, *_added(site)):
        console.show(line)
    console.show(
        f"This site's account stands at ε = {before:.4g}; with the run it will be at "
        f"{after:.4g}, and {rules.epsilon:g} is allowed ('epsilon' of [limits] in "
        f"site.toml; δ = {rules.delta:g})."
    )


def _added(site: Site) -> tuple[str, ...]:
    """Say how much of the noise the site adds, and what that relies on."""
    adding = site.adding
    if adding is None:
        return ("No secure sums: this site adds all of the noise to its own answers.",)
    enough = adding.sites - adding.colluding
    return (
        f"Answers are added under masks, and this site adds 1/{enough} of the noise's "
        f"variance: enough as long as no more than {adding.colluding} of the "
        f"{adding.sites} sites work together, with each other or with the server.",
    )
