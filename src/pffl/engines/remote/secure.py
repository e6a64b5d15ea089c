"""The engine for secure sums: all sites answer under masks, and only totals are read.

To everybody above, the sites are one silo. Every step asks all of them the same, brings
them what all answered to the step before, and needs all of their answers: a sum over
fewer does not exist, since the masks of those who are missing do not cancel. Those who
did not answer are asked again, byte for byte; a site that stays away ends the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pffl.data.encoding import TableEncoding
from pffl.engines.remote.engine import Remote, counts
from pffl.engines.remote.exchange import Entry, Exchange, Record, Transport
from pffl.engines.remote.transcript import Transcript
from pffl.errors import DataError, FederationError, Malformed, Refused, UsageError
from pffl.queries import Census, CensusTotal, Query
from pffl.wire import KEY, Answer, Policy, Verdict, bodies_digest, masks, read_masked
from pffl.wire.envelope import HELLO, MOST_QUERIES, kind_of
from pffl.wire.keys import PublicKeys

LAST = 30.0  # seconds to wait for the last answers, which nobody needs
LOST = (
    "Under secure sums nobody can tell whose answer is at fault: compare the sites' "
    "logs and versions"
)


class Secured(Remote):
    """Ask sites whose answers are added under masks.

    Parameters
    ----------
    transport
        Carries the messages.
    encoding
        How the sites read their tables, with the schema that they agree on.
    sites, keys
        Who takes part, in order, and the public keys by which each signs.
    agreement
        Hash of what all sites agreed on.
    splits, floor
        Splits that every site has, and the fewest people of a cell that a site answers
        about.
    policy, record, name, run, session
        As for `Remote`.
    folder
        Where to keep what a stopped server needs to go on; None for memory only.
    noise
        Whether the sites share noise inside the sums: then no row is counted exactly.
    """

    def __init__(
        self,
        transport: Transport,
        encoding: TableEncoding,
        sites: Sequence[str],
        keys: Mapping[str, PublicKeys],
        *,
        agreement: str,
        splits: Sequence[str] = ("train", "test"),
        floor: int = 1,
        policy: Policy | None = None,
        record: Record | None = None,
        name: str = "data",
        run: str | None = None,
        session: int = 0,
        folder: Path | None = None,
        noise: bool = False,
    ) -> None:
        _check(sites, keys, policy or Policy())
        super().__init__(
            transport,
            encoding.schema,
            sites,
            encoding=encoding,
            policy=policy,
            record=record,
            name=name,
            run=run,
            session=session,
            keys=keys,
        )
        self.pooled = len(self._members)
        self.silo_names = (f"all {self.pooled} sites",)
        self.floor = floor
        self._agreed, self._counting = tuple(splits), not noise
        self._transcript = Transcript(agreement, self.run, folder)
        self._keyed: dict[int, Answer] = {}  # which announce keys of the run

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that every site has, as they agreed on."""
        return self._agreed

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the sites, for the result."""
        if not self._counting:
            return (
                f"every answer is a secure sum of {self.pooled} sites with noise in "
                "it, and shows nobody the figures of a single one: whether it can be "
                "true was not checked, as with noise any sum can",
            )
        notes = [
            f"every answer is a secure sum of {self.pooled} sites, and shows nobody "
            "the figures of a single one: whether the sums can be true was checked, "
            "whether a single site's answers can was not, and what one site could have "
            "done to a bound is not known"
        ]
        if self.floor > 1:
            most = (self.floor - 1) * self.pooled
            notes.append(
                f"left out at sites with fewer than {self.floor} people: their own of "
                "any group (of a group and label, where bounds are for these), in each "
                f"split, whatever other sites have. Up to {most:,} people of each can "
                "be missing, and no statement speaks of them"
            )
        return tuple(notes)

    def ask_many(self, queries: Sequence[Query[Any]]) -> list[Any]:
        """Ask several queries, in as many steps as they need; return the totals.

        Rows of all splits are counted before anything else is asked.
        """
        self._meet()
        if not self._transcript.begun:
            self._transcript.open([self._keyed[k] for k in range(self.pooled)])
        for query in queries:
            if query.split not in self.splits:
                raise UsageError(
                    f"[unknown-split] not every site has a split '{query.split}'"
                )
        if self._counting and not self._census:
            told = self._step([Census(self.schema, split) for split in self.splits])
            self._census = dict(zip(self.splits, told, strict=True))
        posed = [q for q in queries if not counts(q)]
        found: dict[int, Any] = {}
        for first in range(0, len(posed), MOST_QUERIES):
            some = posed[first : first + MOST_QUERIES]
            found |= zip(map(id, some), self._step(some), strict=True)
        return [self._census[q.split] if counts(q) else found[id(q)] for q in queries]

    def _step(self, asked: Sequence[Query[Any]]) -> list[Any]:
        """Ask all sites one step, or recall it; judge the totals."""
        digest = bodies_digest(self._session.bodies(asked, 0))
        total = self._transcript.recalled(digest)
        if total is None:
            answers = self._answers(asked)
            length = _length(asked)
            total = self._transcript.add(digest, answers, length)
        kind = kind_of([query.kind for query in asked])
        try:
            found = masks.decode_all(asked, total, self.pooled)
            return [self._judged(q, one) for q, one in zip(asked, found, strict=True)]
        except (Refused, Malformed) as error:
            raise FederationError(
                f"[implausible-sum] round {self._round} ({kind}): the sum of "
                f"{self.pooled} sites' answers cannot be true: {error}. {LOST}"
            ) from error

    def _answers(self, asked: Sequence[Query[Any]]) -> list[Answer]:
        """Have all sites answer a step, in their order."""
        every = range(self.pooled)
        self._session.step = self._transcript.step
        self._session.relay = self._transcript.relay
        exchange = Exchange(
            self._session,
            self._nodes,
            self.policy.seconds,
            self._admit,
            dict.fromkeys(every, asked),
            Entry(asked=list(self._members)),
        )
        self._carry_out(exchange, every, self.pooled)
        return [exchange.found[k][0] for k in every]

    def _admit(
        self, queries: Sequence[Query[Any]], index: int, answer: Answer
    ) -> list[Verdict]:
        """Take a masked answer to the very same step, after the very same answers."""
        if answer.step != self._transcript.step:
            raise Refused(
                f"[other-step] an answer to step {answer.step}, and not to this one"
            )
        if answer.transcript != self._transcript.hash:
            raise Refused(
                "[other-transcript] it was told other answers than this server has"
            )
        try:
            read_masked(answer, _length(queries))
        except Malformed as error:
            raise Refused(error) from error
        return [Verdict(answer)]

    def _judged(self, query: Query[Any], total: Any) -> Any:
        """Judge a total as that of one silo, which all sites are together."""
        if not self._counting:
            return total
        if isinstance(query, Census) and not query.centred:
            return self._frozen(query, total)
        verdict = self.gate.report(query, 0, total)
        if verdict.clipped:  # sites know the sum as it is
            raise Refused("[implausible-update] an update longer than its steps allow")
        return verdict.total

    def _frozen(self, query: Census, total: CensusTotal) -> CensusTotal:
        if query.split == "train" and not total.rows.any():
            raise DataError(
                "[no-training-rows] every site leaves out all of its training rows: "
                "fewer people than the floor"
            )
        return self.gate.census(0, query.split, total, 0)

    def _greeting(self) -> tuple[Query[Any], ...]:
        """Ask nothing of a node, but who is there."""
        return ()

    def _joined(self, index: int, answer: Answer) -> None:
        """Take a site that is there, with its key of the run, if it has all splits."""
        lacking = [split for split in self.splits if split not in answer.splits]
        if lacking:
            raise Refused(
                f"[unknown-split] it has no split '{lacking[0]}', and all sites must"
            )
        if not self._transcript.begun:
            if answer.transcript != self._transcript.hash:
                raise Refused(
                    "[other-federation] it agreed to another federation.json (pffl "
                    "site agree)"
                )
            try:
                read_masked(answer, KEY)
            except Malformed as error:
                raise Refused(error) from error
            self._keyed[index] = answer
        self._splits[index] = answer.splits

    def end(self) -> None:
        """Have the sites forget the run's secrets; who is away does so in time."""
        self._session.step, self._session.relay = self._transcript.step, ()
        self._session.turn()
        nodes, seconds = self._nodes.address.items(), min(self.policy.seconds, LAST)
        requests = {address: self._session.write((), k) for k, address in nodes}
        for _ in self._transport.exchange(requests, seconds, HELLO):
            pass


def _length(queries: Sequence[Query[Any]]) -> int:
    """How many limbs an answer to all of them takes."""
    return sum(masks.size(query) for query in queries)


def _check(
    sites: Sequence[str], keys: Mapping[str, PublicKeys], policy: Policy
) -> None:
    """Refuse sites that cannot add under masks."""
    if len(sites) < masks.FEWEST_SITES:
        raise UsageError(
            f"[too-few-sites] a secure sum needs {masks.FEWEST_SITES} sites or more, "
            f"and there are {len(sites)}: of two, each would know the other's answers"
        )
    without = [site for site in sites if site not in keys]
    if without:
        raise UsageError(
            f"[missing-key] site '{without[0]}' has no key in federation.json, and "
            "secure sums need every site's: pffl site key"
        )
    if policy.needed(len(sites)) < len(sites):
        raise UsageError(
            f"[secure-sum-quorum] a quorum of {policy.quorum} asks for some of the "
            "sites, and a secure sum is always over all of them: leave the quorum out"
        )
    if policy.update_clip is not None:
        raise UsageError(
            "[secure-sum-clip] update_clip shortens single sites' updates, and a "
            "secure sum shows none: leave it out"
        )
