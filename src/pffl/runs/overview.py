"""How a deployed run stands, from its record: sites, rounds, what is asked now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pffl.runs.directory import RECORD
from pffl.text import shorten, visible

GRADIENTS = "losses and gradients"  # asked in every round
BEGUN, ROUND, ASKING, ENDED = "begun", "round", "asking", "ended"  # events
LONGEST = 200  # characters of a refusal
MOST = 20  # sites that are shown


@dataclass
class SiteView:
    """A site, as the server has seen it.

    Attributes
    ----------
    answers, refusals
        Messages that it answered, and that it did not, or not as it should.
    last
        When it last did; None if never.
    refused
        Why its last message was refused, or refused by it; empty if it was not.
    waiting
        Whether it did not answer the last message that it was sent.
    """

    answers: int = 0
    refusals: int = 0
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
            site.refusals += site.waiting
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


def told(entry: Mapping[str, Any]) -> str:
    """Say what an entry of a record tells an operator; empty if it is nothing new."""
    texts = []
    if entry.get("event") == ROUND:
        texts.append(line(entry))
    if entry.get("event") == ASKING and entry["what"] != GRADIENTS:
        texts.append(f"asking: {entry['what']}")
    if entry.get("event") == ENDED:
        texts.append(f"ended: {entry['message']}")
    texts += [f"{who}: {why}" for who, why in entry.get("refused", ())]
    return "; ".join(dict.fromkeys(texts))


def line(entry: Mapping[str, Any]) -> str:
    """One line about a round, from its entry in the record.

    >>> line({"round": 3, "planned": 10, "answered": 2, "silos": 3, "worst": "f",
    ...       "loss": 0.63, "violation": 0.01, "left": 45.0})
    'round 3 of 10 · 2 of 3 silos · worst f 0.6300 (+0.0100 to its bound) · 45 s left'
    """
    planned = entry.get("planned")
    parts = [f"round {entry['round']}" + (f" of {planned}" if planned else "")]
    parts.append(f"{entry['answered']} of {entry['silos']} silos")
    if entry.get("worst") is not None and entry.get("loss") is not None:
        parts.append(
            f"worst {entry['worst']} {entry['loss']:.4f} "
            f"({entry['violation']:+.4f} to its bound)"
        )
    elif entry.get("risk") is not None:
        parts.append(f"risk {entry['risk']:.4f}")
    if entry.get("gap") is not None:
        parts.append(f"gap {entry['gap']:.1e}")
    if entry.get("left") is not None:
        parts.append(f"{entry['left']:.0f} s left")
    return " · ".join(parts)


def _seconds(time: str, now: datetime) -> float:
    return max(0.0, (now - datetime.fromisoformat(time)).total_seconds())


def _ago(time: str, now: datetime) -> str:
    seconds = _seconds(time, now)
    if seconds < 120:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7200 else f"at {time[:19]} UTC"


# The file


def follow(directory: Path, *, whole: bool = False) -> Iterator[dict[str, Any] | None]:
    """Return the entries that a record gets from now on; None when there is no more.

    What was there before is passed over, unless the `whole` record is wanted. A new run
    begins a new file, which is known by its first line.
    """
    path = directory / RECORD
    return _entries(path, *((b"", b"") if whole else _seen(path, 0)))


def entries_of(directory: Path) -> list[dict[str, Any]]:
    """Return what a record has got so far."""
    out: list[dict[str, Any]] = []
    for entry in follow(directory, whole=True):
        if entry is None:
            break
        out.append(entry)
    return out


def _entries(
    path: Path, first: bytes, before: bytes
) -> Iterator[dict[str, Any] | None]:
    place = len(before)
    while True:
        now, found = _seen(path, place)
        if now != first:
            place = 0 if first else place
            first = now
            continue
        whole, _, _ = found.rpartition(b"\n")
        place += len(whole) + 1 if whole else 0
        for line in whole.splitlines():
            yield json.loads(line)
        yield None


def _seen(path: Path, place: int) -> tuple[bytes, bytes]:
    """Return a file's first line, and what it holds from a place on."""
    try:
        with path.open("rb") as stream:
            first = stream.readline()
            stream.seek(place)
            return (first if first.endswith(b"\n") else b""), stream.read()
    except FileNotFoundError:
        return b"", b""
