"""`pffl deploy` at the coordinator, `pffl site` at each site."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pffl.cli import terminal
from pffl.cli.options import argument, flag, option
from pffl.errors import UsageError

if TYPE_CHECKING:
    from pffl.deploy.site import Site

ADDRESS = "127.0.0.1:8443"
MAX_ENTRIES = 20  # of a site's memory that are shown
FOLDER = option("Default: the only folder here.", None, "--site")


def deploy(
    spec: Path | None = argument(
        "SPEC", "A run file; its data tell the columns.", None
    ),
    sites: Path | None = option("File with the sites' lines."),
    out: Path | None = option("A new folder.", None, "--out", "-o"),
    address: str = option("Where sites reach it.", "HOST:PORT", default=ADDRESS),
    set_: list[str] | None = option("Any key of the run file.", "KEY=VALUE", "--set"),
    check: Path | None = option("Look at a deployed folder."),
) -> None:
    """Write federation.json, the Flower app, the proxy's configuration, and commands.

    The data are opened for the names of columns and groups; no rows are written.

    Example: pffl deploy run.toml --sites lines.txt -o study
    """
    from pffl.deploy import coordinator

    if check is not None:
        raise typer.Exit(0 if _show_checks(coordinator.check(check)) else 5)
    if spec is None or sites is None or out is None:
        raise UsageError("missing-option:deploy")
    from pffl.config import merge, parse, parse_setting
    from pffl.deploy.keys import read_lines
    from pffl.engines import DEPLOYED
    from pffl.files import read
    from pffl.records import read_toml

    sections = read_toml(spec)
    for setting in set_ or ():
        sections = merge(sections, parse_setting(setting))
    sections = merge(sections, {"run": {"engine": DEPLOYED}})
    agreed = coordinator.deploy(
        parse(sections, source=str(spec), base=spec.parent),
        sections,
        read_lines(read(sites).decode("utf-8", "replace")),
        out,
        address=coordinator.Address.parse(address),
    )
    terminal.show(
        f"{len(agreed.sites)} sites, {agreed.mode} mode: {out}",
        coordinator.estimate(agreed),
        f"Go on with {out / 'COMMANDS.md'}",
    )


def _show_checks(found: Iterable[tuple[bool, str]]) -> bool:
    """Show what was found; whether all is well."""
    checks = list(found)
    terminal.show(*(f"{'✓' if good else '✗'} {text}" for good, text in checks))
    return all(good for good, _ in checks)


def init(
    name: str = argument("NAME", "Name of the site, and of its folder."),
) -> None:
    """Make a site with its keys, and print the line for the coordinator.

    Example: pffl site init north
    """
    from pffl.deploy.join import SiteFolder

    made, text = SiteFolder.make(Path(name), name)
    terminal.note(f"{made.path} is for this account alone. Send this line:")
    typer.echo(text)


def join(
    federation: Path = argument("FEDERATION", "The coordinator's file."),
    rows: Path = option("Table (CSV, Parquet, Excel).", default=...),
    site: Path | None = FOLDER,
    peer: list[str] | None = option("Fingerprint, read out.", "SITE=…"),
    trust_keys: bool = flag("Compare no keys.", "--trust-keys"),
    yes: bool = flag("Agree without a question.", "--yes"),
    floor: int = option("Fewest people of a group (10).", default=10),
    queries: int = option("Queries in all, over all runs (1000).", default=1000),
    radius: float = option("Largest norm of a model (15).", default=15.0),
    epsilon: float = option("Privacy budget, over all runs (0).", default=0.0),
    delta: float = option("δ of the privacy budget (1e-6).", default=1e-6),
    end_secure_sums: bool = flag("They may end.", "--end-secure-sums"),
    new_keys: bool = flag("Sites may have new keys.", "--new-keys"),
    other_sites: bool = flag("Sites may change.", "--other-sites"),
    changed_rows: bool = flag("Rows may change.", "--changed-rows"),
) -> None:
    """Show what a federation asks and protects against; agree, and take the rows.

    Example: pffl site join federation.json --rows table.csv --peer south="7507 …"
    """
    from pffl.deploy.join import Joining, SiteFolder
    from pffl.deploy.site import Limits

    place = SiteFolder.find(site)
    limits = Limits(
        floor=floor, queries=queries, radius=radius, epsilon=epsilon, delta=delta
    )
    joining = Joining.of(place, federation, limits)
    terminal.show(*joining.lines())
    peers = {}
    for text in peer or []:
        name, sign, print_ = text.partition("=")
        if not sign or not name.strip():
            raise UsageError("wrong-value:join", text=text)
        peers[name.strip()] = print_.strip()
    if not (trust_keys or yes):
        for name in joining.peers:
            if name not in peers:
                peers[name] = typer.prompt(f"Fingerprint of {name}, as it was read out")
    words = {
        "end-secure-sums": end_secure_sums,
        "new-keys": new_keys,
        "other-sites": other_sites,
    }
    given = [word for word, agreed in words.items() if agreed]
    joining.check(None if trust_keys else peers, given)
    found, notes = joining.prepare(rows, changed=changed_rows)
    for note in notes:
        terminal.note(note)
    _show_counts(found)
    if not yes and not typer.confirm("Join?"):
        raise UsageError("not-agreed:join")
    joining.agree(found.silo, compared=not trust_keys)
    terminal.show("Joined. Now,", *joining.commands())


def serve(
    site: Path | None = FOLDER,
    node_account: str | None = option("Account of Flower's node."),
) -> None:
    """Answer queries on a socket, until it is stopped; a line for each on stderr.

    Example: pffl site serve --node-account flower
    """
    from pffl.deploy.join import SiteFolder, SiteServer

    if os.geteuid() == 0:
        raise UsageError("as-root")
    server = SiteServer(SiteFolder.find(site), node_account)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.stop())
    server.run()


def show(
    site: Path | None = FOLDER,
    json: bool = flag("Print all of it, as JSON.", "--json"),
) -> None:
    """Show what the site joined, what it answered, what is left, and the server.

    Example: pffl site show
    """
    from dataclasses import asdict

    from pffl.deploy.coordinator import server_seen
    from pffl.deploy.join import SiteFolder, consented, promise
    from pffl.deploy.store import REFUSAL
    from pffl.privacy.terms import epsilon_of

    place = SiteFolder.find(site)
    memory = place.memory()
    entries = memory.entries()
    if json:
        terminal.print_json([asdict(entry) for entry in entries])
        return
    agreed, limits = consented(memory)
    terminal.show(f"site '{place.name(memory)}', key {place.key.public.fingerprint}")
    if agreed is None:
        terminal.show("It has joined no federation: pffl site join")
        return
    terminal.show(
        *promise(agreed),
        f"federation '{agreed.name}', sites {', '.join(agreed.sites)}",
        f"queries answered: {memory.queries:,} of {limits.queries:,}",
    )
    if limits.epsilon:
        spent = epsilon_of(memory.spent**0.5, limits.delta) if memory.spent else 0.0
        terminal.show(f"privacy account: ε = {spent:.4g} of {limits.epsilon:g}")
    for entry in entries[-MAX_ENTRIES:]:
        what = entry.body.get("reason" if entry.kind == REFUSAL else "query") or ""
        run = f"run {entry.run[:20]}" if entry.run else ""
        terminal.show(f"  {entry.time} {entry.kind} {run} {what}".rstrip())
    _show_checks(server_seen(agreed))


def _show_counts(site: Site) -> None:
    """Show the site's own counts, for its eyes only; those left out are marked."""
    names = map(site.schema.stratum_name, range(site.schema.n_strata))
    rows = [{"your rows, for your eyes only": name} for name in names]
    for split in site.silo.splits:
        hidden = site.hidden(split) & (not site.agreement.private)
        for row, count, left in zip(rows, site.counts(split), hidden, strict=True):
            row[split] = f"{count:,}{' left out' * bool(left)}"
    terminal.print_rows(rows, len(rows))
