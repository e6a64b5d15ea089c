"""`pffl site status`, `log`, `pause`, `resume`: what an administrator looks after."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pffl.cli import console
from pffl.cli.site import File

if TYPE_CHECKING:
    from pffl.site.account import Account
    from pffl.site.log import Entry
    from pffl.site.status import RunStatus

MOST = 20  # lines that are shown, unless told otherwise
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def status(path: File, json: JSON = False) -> None:
    """Show how the site stands: whether it answers, what left it, what is left.

    Example: pffl site status .
    """
    from pffl.progress import size
    from pffl.site import SiteConfig
    from pffl.site.status import Status

    found = Status.of(SiteConfig.load(path))
    if json:
        console.print_json(asdict(found))
        return
    others = [name for name in found.sites if name != found.site]
    console.show(f"site '{found.site}' of '{found.data}', with {', '.join(others)}")
    if found.trouble:
        state = f"; {found.paused}" if found.paused else ""
        console.show(f"cannot answer: {found.trouble}{state}")
    else:
        rows = ", ".join(f"{split} {n:,}" for split, n in found.rows.items())
        console.show(f"{found.paused or 'ready to answer'}; rows: {rows}")
    if found.last is None:
        console.show("nothing was asked yet")
        return
    answered = sum(run.answered for run in found.runs)
    refused = sum(run.refused for run in found.runs)
    sent = size(sum(run.size for run in found.runs))
    console.show(
        f"answered {answered:,} messages, refused {refused:,}; {sent} left the site"
    )
    last = found.last
    ended = f"refused: {last.refused}" if last.refused else "answered"
    console.show(f"last asked {_when(last.time)} for {_asked(last)}: {ended}")
    for run in found.runs[-MOST:]:
        console.show(_run(run))


def log(
    path: File,
    last: Annotated[int, typer.Option(help="How many lines; 0 for all.")] = MOST,
    run: Annotated[str | None, typer.Option(help="Of this run only.")] = None,
    refused: Annotated[
        bool, typer.Option("--refused", help="Only what was refused.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each.")
    ] = False,
) -> None:
    """Show what the site was asked, and what it answered or refused, newest last.

    Example: pffl site log . --refused
    """
    from json import dumps

    from pffl.progress import size
    from pffl.site import SiteConfig
    from pffl.site.log import Log

    entries = [
        entry
        for entry in Log(SiteConfig.load(path).folder).read()
        if (run is None or entry.run == run) and (entry.refused or not refused)
    ]
    if not entries and not json:
        console.show("nothing of that kind was asked yet")
    for entry in entries[-last:] if last > 0 else entries:
        if json:
            typer.echo(dumps(asdict(entry)))
            continue
        step = f", step {entry.step}" if entry.step else ""
        said = f"refused: {entry.refused}" if entry.refused else _left(entry.left)
        console.show(
            f"{_when(entry.time)}  {entry.run or 'unreadable'}{step}  {_asked(entry)}  "
            f"{size(entry.size)}  {said}"
        )


def ledger(
    path: File,
    json: JSON = False,
    begin: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Begin an account for other people: why nobody of them was ever in "
            "a release with noise. Written down; prepare the rows again.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Show what releases with noise have cost the site's people, and what is left.

    Example: pffl site ledger .
    """
    import math

    from pffl.errors import Refused, UsageError
    from pffl.privacy.accounting import epsilon_of
    from pffl.site import SiteConfig
    from pffl.site.account import Account

    config = SiteConfig.load(path)
    rules = config.rules
    if not rules.epsilon:
        raise UsageError(
            "[no-privacy-budget] the site answers nothing with noise: 'epsilon' of "
            "[limits] in site.toml"
        )
    account = Account(config.folder, rules.epsilon, rules.delta)
    if begin is not None:
        _begin(account, begin.strip(), yes=yes)
        return
    try:
        lines = account.lines()
    except Refused as error:
        raise UsageError(error) from error
    runs: dict[str, float] = {}
    for line in lines:
        runs[line.run] = runs.get(line.run, 0.0) + line.mu**2
    spent = account.spent_epsilon()
    if json:
        found = {
            "epsilon": rules.epsilon,
            "delta": rules.delta,
            "spent": spent,
            "releases": len(lines),
            "runs": {
                run: epsilon_of(math.sqrt(mu), rules.delta) for run, mu in runs.items()
            },
        }
        console.print_json(found)
        return
    console.show(
        f"{len(lines):,} releases with noise: ε = {spent:.4g} of {rules.epsilon:g} is "
        f"spent, at δ = {rules.delta:g}, training and held-out rows together"
    )
    for run, mu in runs.items():
        alone = epsilon_of(math.sqrt(mu), rules.delta)
        console.show(f"  run {run}: ε = {alone:.4g} by itself")


def _begin(account: Account, declared: str, *, yes: bool) -> None:
    """Begin an account for other people, as an administrator declares them to be."""
    from pffl.errors import UsageError

    if not declared:
        raise UsageError(
            "[needs-reason] --begin needs words: who the people are, and why others"
        )
    asked = "Was nobody of this site's people ever in a release with noise?"
    if not yes and not typer.confirm(asked):
        raise UsageError(
            "[needs-confirmation] no account was begun: what was spent still counts"
        )
    with account.turn():
        account.begin(declared)
    console.show(
        "A privacy account was begun; the one before, if there was any, is kept "
        "beside it. Prepare the rows again: pffl site prepare"
    )


def pause(
    path: File,
    because: Annotated[
        str, typer.Option(metavar="TEXT", help="Why; the server is told.")
    ] = "",
) -> None:
    """Answer nobody until `pffl site resume`; a run that asks stops and can go on.

    Example: pffl site pause . --because "backup until noon"
    """
    from pffl.site import SiteConfig
    from pffl.site.pause import pause as begin

    config = SiteConfig.load(path)
    console.show(f"site '{config.name}' is {begin(config.folder, because)}")


def resume(path: File) -> None:
    """Answer again after `pffl site pause`.

    Example: pffl site resume .
    """
    from pffl.site import SiteConfig
    from pffl.site.pause import paused
    from pffl.site.pause import resume as end

    config = SiteConfig.load(path)
    was = paused(config.folder)
    end(config.folder)
    how = "was not paused" if was is None else f"answers again (it was {was})"
    console.show(f"site '{config.name}' {how}")


def _run(run: RunStatus) -> str:
    from pffl.progress import size

    parts = [
        f"{run.answered:,} messages answered ({run.queries:,} queries)",
        f"{run.refused:,} refused",
        f"{size(run.size)} left the site",
    ]
    if run.left:
        parts.append(_left(run.left))
    name = "unreadable" if run.run is None else f"run {run.run}"
    return f"{name}, {_when(run.first)} to {_when(run.last)}: {'; '.join(parts)}"


def _asked(entry: Entry) -> str:
    if not entry.queries:
        return "a greeting" if entry.run else "nothing that could be read"
    counted = Counter(entry.queries).items()
    return ", ".join(kind if n == 1 else f"{n} {kind}" for kind, n in counted)


def _left(left: dict[str, float]) -> str:
    return ", ".join(f"{n:,.6g} {what}" for what, n in left.items()) + " left"


def _when(time: str) -> str:
    return time.replace("T", " ").replace("+00:00", " UTC")
