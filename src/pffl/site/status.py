"""How a site stands, for its own administrator: what was asked, and what is left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pffl.errors import PFFLError
from pffl.site.answer import Site
from pffl.site.config import SiteConfig
from pffl.site.log import Entry, Log
from pffl.site.pause import Pause, paused


@dataclass(frozen=True)
class RunStatus:
    """What a run was answered, as far as the log goes back.

    Attributes
    ----------
    run
        Its name, which the server chose; None for messages that could not be read.
    first, last
        When its first and its last message came.
    answered, refused
        Messages.
    queries
        Queries that were answered.
    size
        Bytes that left the site.
    left
        What it may still ask, as its last answer left it.
    """

    run: str | None
    first: str
    last: str
    answered: int
    refused: int
    queries: int
    size: int
    left: dict[str, float]


@dataclass(frozen=True)
class Status:
    """How a site stands.

    Attributes
    ----------
    site, data, sites
        Its name, what the federation's data are called, and who takes part.
    paused
        The pause, if it is paused.
    trouble
        Why it could not answer; empty if it could.
    rows
        Prepared rows of each split.
    runs
        The runs of its log, oldest first.
    last
        The last message.
    """

    site: str
    data: str
    sites: tuple[str, ...]
    paused: Pause | None
    trouble: str
    rows: dict[str, int]
    runs: tuple[RunStatus, ...]
    last: Entry | None

    @classmethod
    def of(cls, config: SiteConfig) -> Status:
        """Look at a site's folder; nothing there is changed."""
        agreed, entries = config.agreement(), Log(config.folder).read()
        trouble, rows = "", {}
        try:
            site = Site.configured(config)
            rows = {split: len(site.silo.rows(split)) for split in site.silo.splits}
        except PFFLError as error:
            trouble = str(error)
        return cls(
            config.name,
            agreed.name,
            agreed.sites,
            paused(config.folder),
            trouble,
            rows,
            by_run(entries),
            entries[-1] if entries else None,
        )


def by_run(entries: Iterable[Entry]) -> tuple[RunStatus, ...]:
    """Sum up a log by run, in order of their first messages."""
    runs: dict[str | None, list[Entry]] = {}
    for entry in entries:
        runs.setdefault(entry.run, []).append(entry)
    return tuple(_summary(run, own) for run, own in runs.items())


def _summary(run: str | None, entries: list[Entry]) -> RunStatus:
    answered = [entry for entry in entries if not entry.refused]
    return RunStatus(
        run,
        entries[0].time,
        entries[-1].time,
        len(answered),
        len(entries) - len(answered),
        sum(len(entry.queries) for entry in answered),
        sum(entry.size for entry in entries),
        answered[-1].left if answered else {},
    )
