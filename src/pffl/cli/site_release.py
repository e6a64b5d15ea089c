"""`pffl site show` and `approve`: what may leave a site, and about which rows."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pffl.cli import console
from pffl.cli.site import File

if TYPE_CHECKING:
    from pffl.site import Site
    from pffl.site.agreement import Agreement
    from pffl.site.outlook import Line, NoiseOutlook

MASKED = (
    "Answers are added under masks: the server reads what all sites have together.",
    "Every question is compared with the run above: the server cannot choose a model.",
    "A site that works with the server undoes both. What is left then is this count, "
    "which takes that site's own rows off, and the limits of site.toml.",
)
PLAIN = (
    "No secure sums: the server reads this site's own sums, and the site cannot tell "
    "whether it asks what the run needs.",
    "What holds is this count, the floor and the other limits of site.toml.",
)
NO_PROOF = "Counting is no proof: inputs of few values are told by fewer numbers."


def show(
    path: File,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object.")
    ] = False,
) -> None:
    """Say what the agreed run will ask, how often, and how much may leave in all.

    Example: pffl site show .
    """
    from pffl.site import Site, SiteConfig
    from pffl.site.follow import plan_of
    from pffl.site.outlook import NoiseOutlook, Outlook

    config = SiteConfig.load(path)
    agreed, site = config.agreement(), Site.open(path)
    noise = NoiseOutlook.of(plan_of(agreed), agreed) if agreed.run else None
    if noise is not None:
        _show_noise(site, agreed, noise, json=json)
        return
    found = Outlook.of(site, agreed)
    if json:
        console.print_json(asdict(found))
        return
    _show_run(site, agreed)
    console.show(
        f"It trains by {found.method}, and asks about {found.asked:,} questions of the "
        f"training rows as a rule; at most {found.most:,} are answered in a run."
    )
    _table(found.lines, agreed)
    console.show(
        f"release = {site.rules.release:g} in site.toml: so many numbers may leave per "
        "row and input, over the life of the rows. At 1 there are as many as unknowns, "
        "and rows can be computed from them."
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
        MASKED[1],
    )


def approve(
    path: File,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    other_columns: Annotated[
        bool,
        typer.Option(
            "--other-columns",
            help="With --yes: also where columns, groups or labels are others.",
        ),
    ] = False,
) -> None:
    """Approve rows that changed since they were last answered about.

    What left about the earlier ones still counts.

    Example: pffl site approve .
    """
    from pffl.errors import UsageError
    from pffl.site import Site
    from pffl.site.release import OTHER_COLUMNS

    site = Site.open(path)
    if site.ledger.approved:
        console.show("The rows are those that were approved last: nothing to do.")
        return
    changes = site.ledger.changes()
    for split, counts in changes[max(changes)].items() if changes else ():
        for atom in counts.nonzero()[0].tolist():
            name = site.schema.atom_name(atom)
            console.show(f"{split}, {name}: {counts[atom]:,} rows came or went")
    others = site.ledger.other_columns
    if others:
        console.note(OTHER_COLUMNS.format(site.rules.floor))
    if others and yes and not other_columns:
        raise UsageError("--yes does not approve that: add --other-columns")
    if not yes and not typer.confirm("Answer about these rows from now on?"):
        raise UsageError("the changed rows were not approved: nothing is answered")
    site.approve(other_columns=others)
    console.show("Approved. What left about the earlier rows still counts.")


def _table(found: tuple[Line, ...], agreed: Agreement) -> None:
    from pffl.cli.show import plain_table, print_whole

    target = console.stdout()
    table = plain_table(target.width)
    table.add_column("rows", overflow="fold")
    last = "rows needed elsewhere" if agreed.secure_sum else "may leave"
    for title in ("numbers left", "a run adds", last):
        table.add_column(title, justify="right")
    for line in found:
        room = line.needed if line.room is None else line.room
        over = line.room is not None and line.told + line.more > line.room
        note = " too few rows" if over else ""
        table.add_row(
            f"{line.split}: {line.rows}",
            f"{line.told:,}",
            f"{line.more:,}",
            f"{room:,}{note}",
        )
    print_whole(target, table)
