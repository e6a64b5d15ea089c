"""How a deployed run stands, from its record: sites, rounds, what is asked now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pffl.flower.live import ASKING, BEGUN, ENDED, ROUND, line
from pffl.text import shorten, visible

LONGEST = 200  # characters of a refusal
MOST = 20  # sites that are shown


@dataclass
class SiteView:
    """A site, as the server has seen it.

    Attributes
    ----------
    answers
        Messages that it answered.
    last
        When it last did; None if never.
    refused
        Why its last message was refused, or refused by it; empty if it was not.
    waiting
        Whether it did not answer the last message that it was sent.
    """

    answers: int = 0
    last: str | None = None
    refused: str = ""
    waiting: bool = False


@dataclass
class Overview:
    """What a record tells, entry by entry.

    Attributes
    ----------
    run, data, begun
        Name of the run and of its data, and when its server began.
    sites
        By name.
    round
        The last entry about a round.
    asking
        The last entry about what is asked, until it was answered.
    messages
        To each site, so far.
    ended
        The last entry of all.
    """

    run: str = ""
    data: str = ""
    begun: str = ""
    sites: dict[str, SiteView] = field(default_factory=dict)
    round: dict[str, Any] | None = None
    asking: dict[str, Any] | None = None
    messages: int = 0
    ended: dict[str, Any] | None = None

    def take(self, entry: Mapping[str, Any]) -> None:
        """Take in an entry of the record."""
        event = entry.get("event")
        if event == BEGUN:
            self.run, self.data, self.begun = entry["run"], entry["data"], entry["time"]
            self.sites = {name: self._site(name) for name in entry["sites"]}
            self.ended = self.asking = None
        elif event == ROUND:
            self.round = dict(entry)
        elif event == ASKING:
            self.asking = dict(entry)
        elif event == ENDED:
            self.ended, self.asking = dict(entry), None
        elif "asked" in entry:
            self._exchange(entry)

    def _site(self, name: str) -> SiteView:
        return self.sites.setdefault(name, SiteView())

    def _exchange(self, entry: Mapping[str, Any]) -> None:
        self.messages += 1
        why = dict(entry["refused"])
        for name in entry["asked"]:
            site = self._site(name)
            site.waiting = name not in entry["answered"]
            site.refused = why.get(name, "") if site.waiting else ""
            if not site.waiting:
                site.answers, site.last = site.answers + 1, entry["time"]
        if self.asking is not None:
            self.asking["answered"] = True

    def lines(self, now: datetime) -> list[str]:
        """Tell it in a few lines."""
        if not self.begun and not self.sites:
            return ["nothing is recorded yet: the server has not begun"]
        told = [f"run {self.run} of '{self.data}', begun {_ago(self.begun, now)}"]
        if self.round is not None:
            told.append(line({**self.round, "left": self._left(now)}))
        if self.ended is not None:
            told.append(f"ended: {self.ended['message']}")
        elif self.asking is not None:
            out = _ago(self.asking["time"], now)
            state = "answers are in" if self.asking.get("answered") else f"asked {out}"
            told.append(f"now: {self.asking['what']}, {state}")
        else:
            told.append("now: waiting until every site has answered once")
        shown = sorted(self.sites, key=lambda name: not self.sites[name].waiting)
        names = [n for n in self.sites if n in shown[:MOST]]  # who is waited for first
        told += [self._told(name, self.sites[name], now) for name in names]
        if len(self.sites) > MOST:
            told.append(f"  … and {len(self.sites) - MOST:,} more sites")
        return [visible(text) for text in told]

    def _left(self, now: datetime) -> float | None:
        """Seconds to the end of the rounds, from when they were reckoned."""
        entry = self.round
        if entry is None or entry.get("left") is None or self.ended is not None:
            return None
        return max(0.0, float(entry["left"]) - _seconds(entry["time"], now))

    def _told(self, name: str, site: SiteView, now: datetime) -> str:
        if site.last is None:
            state = "no answer yet"
        else:
            many = "1 answer" if site.answers == 1 else f"{site.answers:,} answers"
            state = f"{many}, the last {_ago(site.last, now)}"
        if site.refused:
            state += f"; {shorten(site.refused, LONGEST)}"
        elif site.waiting:
            state += "; did not answer"
        return f"  {name}: {state}"


def _seconds(time: str, now: datetime) -> float:
    return max(0.0, (now - datetime.fromisoformat(time)).total_seconds())


def _ago(time: str, now: datetime) -> str:
    seconds = _seconds(time, now)
    if seconds < 120:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7200 else f"at {time[:19]} UTC"
