"""A site's releases with noise: each is charged before it is drawn, and drawn once.

Without secure sums a site adds all of the noise to its own answer, which its server
reads, and keeps the answer: the same query again, byte for byte, gets the same
numbers. Inside a secure sum it adds its share, 1/(K − c) of the variance, so that the
K − c sites that are counted on add up to all of it; its draws follow from the site's
secrets of the run and all that was said (`site.masking`). So whoever ends the process
in between gets the same draw again, which is charged once. Either way the account
(`site.account`) is charged with what the release costs a person: of a secure sum, what
its total does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pffl import files
from pffl.data.schema import Schema
from pffl.data.silo import Silo
from pffl.errors import Refused
from pffl.parcel import Parcel
from pffl.privacy.discrete import Source, secret_source
from pffl.queries import Query, Total, View
from pffl.queries.release import Adding
from pffl.site import store
from pffl.site.account import Account
from pffl.wire import Request, bodies_digest, total_body

Views = dict[tuple[str, str], View]


class Releases:
    """What a site lets out with noise.

    Parameters
    ----------
    silo, schema
        The rows, and what the federation agreed on.
    account
        What is charged; None where the site has no budget.
    """

    def __init__(self, silo: Silo, schema: Schema, account: Account | None) -> None:
        self._silo, self._schema, self.account = silo, schema, account

    def check(self, asked: Sequence[Query[Any]]) -> None:
        """Refuse releases where there is no budget, and all else where there is one."""
        noised = sum(query.released for query in asked)
        if noised and self.account is None:
            raise Refused(
                "[no-privacy-budget] a release with noise, for which this site has no "
                "budget ('epsilon' of [limits] in site.toml)"
            )
        if self.account is not None and noised < len(asked):
            raise Refused(
                "[not-under-noise] a sum without noise: this site has a privacy "
                "budget ('epsilon' of [limits] in site.toml), and answers nothing "
                "outside of it"
            )

    def open(self, *, fresh: bool, remember: bool) -> None:
        """Refuse where nobody knows what was spent, or one row more moves others.

        `fresh` says that nothing was ever answered about the rows: those in memory have
        their account begun.
        """
        account, splits = self.account, self._silo.splits
        if isinstance(splits, store.Stored) and not splits.apart:
            raise Refused(
                "[wrong-split] its rows were cut at random, where one person more "
                "moves others: with [limits] epsilon in site.toml they must be "
                "prepared (pffl site prepare)"
            )
        if account is None:
            return
        with account.turn():
            if remember and not account.begun and fresh:
                account.begin()
            elif account.begun or not fresh:
                account.lines()

    # All of the noise, without secure sums

    def apart(
        self, request: Request, asked: Sequence[Any], *, remember: bool
    ) -> list[Parcel]:
        """Answer with all of the noise; each release is charged before it leaves."""
        views: Views = {}
        if self.account is None:
            raise Refused("[no-account] a release with noise, and no account")
        with self.account.turn():
            return [
                self._once(request.run, query, body, views, remember=remember)
                for query, body in zip(asked, request.bodies, strict=True)
            ]

    def _once(
        self, run: str, query: Any, body: Parcel, views: Views, *, remember: bool
    ) -> Parcel:
        """Return what was answered to the very same query, or draw and charge it."""
        account: Any = self.account
        mark = files.digest(self._schema.hash, bodies_digest((body,)))
        kept: Parcel | None = account.kept(mark)
        if kept is not None:
            return kept
        noisy = query.noised(self._exactly(query, views), secret_source(), factor=1.0)
        told = total_body(query, noisy)
        if remember:
            account.charge(run, mark, query.split, float(query.mu))
            account.keep(mark, told)
        return told

    # A share of it, inside a secure sum

    def shared(
        self, asked: Sequence[Any], adding: Adding, source: Source
    ) -> list[Total]:
        """Return sums over the site's rows, with its share of the noise."""
        views: Views = {}
        return [
            query.noised(self._exactly(query, views), source, factor=adding.each)
            for query in asked
        ]

    def enter(self, run: str, marks: Sequence[str], asked: Sequence[Any]) -> None:
        """Charge releases, but for those that are; all or none, before any draw."""
        if self.account is None:
            return
        with self.account.turn():
            known = {line.query for line in self.account.lines()}
            pairs = zip(marks, asked, strict=True)
            new = [(mark, q) for mark, q in pairs if mark not in known]
            self.account.allow([float(q.mu) for _, q in new])
            for mark, q in new:
                self.account.charge(run, mark, q.split, float(q.mu))

    def _exactly(self, query: Any, views: Views) -> Total:
        """Return what a release is before noise: it never leaves."""
        key = query.view_key
        if key not in views:
            model = None if query.task is None else query.task.model
            views[key] = View.of(self._silo, self._schema, model, query.split)
        total: Total = query.answer(views[key])
        return total
