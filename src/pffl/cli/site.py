"""`pffl site`: make a site, join a federation, answer, and see what was answered."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pffl.cli import console

if TYPE_CHECKING:
    from pffl.deploy.site import Site

app = typer.Typer(no_args_is_help=True, help="A site of a deployed federation.")
Folder = Annotated[
    Path | None,
    typer.Option("--site", help="The site's folder; default: the only one here."),
]


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="Name of the site, and of its folder.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where to make it; default: NAME, here.")
    ] = None,
) -> None:
    """Make a site with its keys, and print the line for the coordinator.

    Example: pffl site init north
    """
    from pffl.deploy.join import SiteFolder

    made, text = SiteFolder.make(folder or Path(name), name)
    console.note(
        f"{made.path}: for this account alone. Send the coordinator this line:"
    )
    typer.echo(text)


@app.command()
def join(
    federation: Annotated[
        Path, typer.Argument(help="federation.json, from the coordinator.")
    ],
    rows: Annotated[Path, typer.Option(help="The site's table: CSV, Parquet, Excel.")],
    site: Folder = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(help="Fingerprint as a site's people said it.", metavar="SITE=…"),
    ] = None,
    trust_keys: Annotated[
        bool,
        typer.Option("--trust-keys", help="Do not compare fingerprints (for a trial)."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Agree without a question.")
    ] = False,
    rename: Annotated[
        list[str] | None,
        typer.Option(help="A column's name here.", metavar="THEIRS=OURS"),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Column that says the split of each row.")
    ] = None,
    floor: Annotated[int, typer.Option(help="Fewest people of a cell.")] = 10,
    queries: Annotated[int, typer.Option(help="Queries in all, over all runs.")] = 1000,
    radius: Annotated[float, typer.Option(help="Largest norm of a model.")] = 15.0,
    batches: Annotated[
        bool, typer.Option("--batches", help="Also answer steps on batches.")
    ] = False,
    epsilon: Annotated[
        float, typer.Option(help="Privacy budget, over all runs.")
    ] = 0.0,
    delta: Annotated[float, typer.Option(help="δ of the privacy budget.")] = 1e-6,
    end_secure_sums: Annotated[
        bool, typer.Option("--end-secure-sums", help="Let secure sums end.")
    ] = False,
    new_keys: Annotated[
        bool, typer.Option("--new-keys", help="Take other keys of other sites.")
    ] = False,
    other_sites: Annotated[
        bool, typer.Option("--other-sites", help="Take another set of sites.")
    ] = False,
    changed_rows: Annotated[
        bool, typer.Option("--changed-rows", help="Few rows may have changed.")
    ] = False,
    other_people: Annotated[
        str | None,
        typer.Option(
            help="Begin a new account, and say why nobody was in the old one."
        ),
    ] = None,
) -> None:
    """Show what a federation asks and from whom it protects; agree, and take the rows.

    Example: pffl site join federation.json --rows table.csv --peer south="7507 …"
    """
    from pffl.deploy.join import Joining, SiteFolder
    from pffl.deploy.limits import Limits
    from pffl.deploy.store import BEGIN
    from pffl.errors import UsageError

    place = SiteFolder.find(site)
    limits = Limits(
        floor=floor,
        queries=queries,
        radius=radius,
        batches=batches,
        epsilon=epsilon,
        delta=delta,
    )
    if other_people is not None:
        memory = place.memory()
        name = place.name(memory)
        memory.add(BEGIN, {"site": name, "declared": other_people})
        memory.close()
    joining = Joining.of(place, federation, limits)
    for text in joining.lines():
        console.show(text)
    peers = {**_pairs(peer or [], "--peer")}
    if not (trust_keys or yes):
        for name in joining.peers:
            if name not in peers:
                peers[name] = typer.prompt(f"Fingerprint of {name}, as it was read out")
    words = {
        "end-secure-sums": end_secure_sums,
        "new-keys": new_keys,
        "other-sites": other_sites,
    }
    given = [word for word, value in words.items() if value]
    joining.check(None if trust_keys else peers, given)
    renamed = _pairs(rename or [], "--rename")
    found, notes = joining.prepare(
        rows, renamed=renamed, column=split, changed=changed_rows
    )
    for note in notes:
        console.note(note)
    _counts(found)
    if not yes and not typer.confirm("Join?"):
        raise UsageError("[not-agreed] nothing was joined")
    joining.agree(compared=not trust_keys)
    console.show("Joined. Now,")
    for text in joining.commands():
        console.show(text)


@app.command()
def serve(
    site: Folder = None,
    node_account: Annotated[
        str | None, typer.Option(help="Account of Flower's node, which may ask.")
    ] = None,
    socket: Annotated[
        Path | None, typer.Option(help="The socket; default: FOLDER.socket/pffl.sock.")
    ] = None,
) -> None:
    """Answer queries on a socket, until it is stopped; a line for each on stderr.

    Example: pffl site serve --node-account flower
    """
    from pffl.deploy.join import SiteFolder
    from pffl.deploy.serve import SiteServer
    from pffl.errors import UsageError

    if os.geteuid() == 0:
        raise UsageError(
            "[as-root] root reads everything: run this as an account of the site's own"
        )
    server = SiteServer(SiteFolder.find(site), socket, node_account)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.stop())
    server.run()


@app.command()
def show(
    site: Folder = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print all that is remembered, as JSON.")
    ] = False,
) -> None:
    """Show what the site joined, what it answered, what is left, and the server.

    Example: pffl site show
    """
    from dataclasses import asdict

    from pffl.deploy.join import SiteFolder, consented, promise
    from pffl.deploy.launch import server_seen
    from pffl.deploy.store import REFUSAL
    from pffl.privacy.accounting import epsilon_of
    from pffl.text import visible

    place = SiteFolder.find(site)
    memory = place.memory()
    entries = memory.entries()
    if json:
        console.print_json([asdict(entry) for entry in entries])
        return
    agreed, limits = consented(memory)
    console.show(f"site '{place.name(memory)}', key {place.key.public.fingerprint}")
    if agreed is None:
        console.show("It has joined no federation: pffl site join")
        return
    for text in promise(agreed):
        console.show(text)
    console.show(f"federation '{agreed.name}', sites {', '.join(agreed.sites)}")
    console.show(f"queries answered: {memory.queries:,} of {limits.queries:,}")
    if limits.epsilon:
        spent = epsilon_of(memory.spent**0.5, limits.delta) if memory.spent else 0.0
        console.show(f"privacy account: ε = {spent:.4g} of {limits.epsilon:g}")
    for entry in entries[-20:]:
        what = entry.body.get("reason") if entry.kind == REFUSAL else ""
        told = what or ", ".join(map(str, _list(entry.body.get("query"))))
        run = f"run {entry.run[:20]}" if entry.run else ""
        console.show(visible(f"  {entry.time} {entry.kind} {run} {told}".rstrip()))
    for good, text in server_seen(agreed):
        console.show(f"{'✓' if good else '✗'} {text}")


def _list(value: object) -> list[object]:
    return [] if value is None else [value]


def _pairs(given: list[str], option: str) -> dict[str, str]:
    from pffl.errors import UsageError

    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"[wrong-value] {option} NAME=VALUE. Got {text!r}")
        found[name.strip()] = value.strip()
    return found


def _counts(site: Site) -> None:
    """Show the site's own counts, for its eyes only; those left out are marked."""
    from pffl.cli.show import LONGEST_NAME, name, plain_table, print_whole

    target, schema, splits = console.stdout(), site.schema, list(site.silo.splits)
    table = plain_table(target.width)
    table.add_column("your rows, for your eyes only", overflow="fold")
    for split in splits:
        table.add_column(split, justify="right")
    counts = {split: site.counts(split) for split in splits}
    private = site.agreement.private
    hidden = {split: site.hidden(split) & (not private) for split in splits}
    for atom in range(schema.n_atoms):
        cells = [
            f"{counts[s][atom]:,}{' left out' if hidden[s][atom] else ''}"
            for s in splits
        ]
        table.add_row(name(schema.atom_name(atom), 2 * LONGEST_NAME), *cells)
    print_whole(target, table)
