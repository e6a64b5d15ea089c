"""A site's part in a secure sum: each step of a run is answered once, under masks.

For each run a site draws a secret, and answers the server's greeting with what others
are told of it, signed together with the hash of the agreement, the run and its name.
A request brings what all sites answered to the step before, signed: to the first, their
keys. The site checks these answers, and goes on with the transcript of all that was
said: masks depend on it, so sites that were shown different things do not add up.

What a run has come to lies in one file, which is forced to the disk before an answer
leaves, and is removed when the run ends. An answered step that is asked again, byte for
byte, gets the very same masked numbers; anything else at that step gets none. Where the
file is put back from a copy, nothing else can happen: masks and noise follow from its
secrets and from the transcript, this request included, and the sums from rows whose
hash it holds. So the same request has the same answer, and another one another mask.
"""

from __future__ import annotations

import hmac
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pffl import files
from pffl.errors import Malformed, Refused, UsageError
from pffl.log import differences
from pffl.parcel import Parcel, pack, unpack
from pffl.privacy.discrete import Source, keyed_source
from pffl.queries import Query
from pffl.site.agreement import Agreement
from pffl.wire import Answer, Request, masks, read_answer, read_masked, signed_content
from pffl.wire.envelope import bodies_digest, first_transcript, next_transcript
from pffl.wire.keys import SiteKeys, announced, shared

FOLDER = "runs"  # of a site: a file for each run under secure sums
LOCK = ".lock"  # one for all of them: their names are the server's to choose
SUFFIX = ".safetensors"
LASTS = 30 * 86400.0  # seconds after which a run that never ended is forgotten
NOTHING = bodies_digest(())  # what a greeting asks
SECONDS = 30.0  # to wait for another process that answers at the same time


@dataclass(frozen=True, eq=False)
class Standing:
    """Where a run stands at a site, after its last answer.

    Attributes
    ----------
    transcript
        What was said before it.
    masked
        What the site answered: before the first step, its key of the run.
    secret, seed
        Of this run alone, from which its masks and its noise come, in hexadecimal.
    step
        The last step that was answered; 0 before the first.
    asked
        Digest of its queries.
    keys
        What all sites announced, in their order, once that was heard.
    """

    transcript: str
    masked: NDArray[np.uint64]
    secret: str = field(repr=False)
    seed: str = field(repr=False)
    step: int = 0
    asked: str = NOTHING
    keys: tuple[str, ...] = ()

    @property
    def key(self) -> NDArray[np.uint64]:
        """What the site announces."""
        return np.frombuffer(announced(bytes.fromhex(self.secret)), "<u8")

    def packed(self, identity: Mapping[str, str]) -> bytes:
        """Return the content of the file, with its hash."""
        plain = {**vars(self), "keys": [*self.keys], "masked": None}
        header = {"identity": dict(identity), "run": plain}
        arrays = {"masked": self.masked.view(np.int64)}
        known = files.digest(pack(Parcel(header, arrays)))
        return pack(Parcel({**header, "sha256": known}, arrays))

    @classmethod
    def unpacked(cls, content: bytes) -> tuple[Mapping[str, Any], Standing]:
        """Return which run the content of a file is of, and where that stands."""
        parcel = unpack(content)
        header, arrays = dict(parcel.header), parcel.arrays
        if header.pop("sha256", None) != files.digest(pack(Parcel(header, arrays))):
            raise Malformed("[bad-frame] it does not have the hash it states")
        plain, masked = header["run"], arrays["masked"].view(np.uint64)
        found = cls(**{**plain, "masked": masked, "keys": tuple(plain["keys"])})
        return header["identity"], found


def marks_of(standing: Standing, request: Request) -> list[str]:
    """Return what tells each query of the next step from all others.

    Sites that were told the same have the same marks.
    """
    asked = [bodies_digest((body,)) for body in request.bodies]
    return [
        files.digest(standing.transcript, str(request.step), str(place), one)
        for place, one in enumerate(asked)
    ]


class Member:
    """One site of a secure sum.

    Parameters
    ----------
    name, agreement, keys
        Which of the sites it is, what they agreed on, and its own key.
    known
        What answers follow from, beside the run's secrets and what was said: the hash
        of the rows, the floor, the version. A run does not go on over others.
    folder
        Where runs are remembered; None for the memory of this process.
    """

    def __init__(
        self,
        name: str,
        agreement: Agreement,
        keys: SiteKeys | None,
        *,
        known: Mapping[str, str],
        folder: Path | None,
    ) -> None:
        if keys is None:
            raise UsageError(
                f"[missing-key] site '{name}' takes part in secure sums and has no "
                "key: make one with pffl site key"
            )
        if agreement.keys[name] != keys.public:
            raise UsageError(
                f"[other-key] the key of site '{name}' is not the one in "
                "federation.json: the sites must agree on its public part"
            )
        self.name, self.agreement, self.keys = name, agreement, keys
        self.index = agreement.sites.index(name)
        self._known, self._folder = dict(known), folder
        self._memory: dict[str, Standing] = {}
        self._turn = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let one process at a time answer under masks."""
        with self._turn:
            if self._folder is None:
                yield
                return
            lock = files.folder(self._folder, private=True) / LOCK
            try:
                with files.lock(lock, seconds=SECONDS, private=True):
                    yield
            except files.Locked as error:
                raise Refused(
                    "[site-busy] the site is busy with another query"
                ) from error

    def standing(self, run: str) -> Standing | None:
        """Return where a run stands; None if the site knows nothing of it."""
        path = self._path(run)
        if path is None or not path.exists():
            return self._memory.get(run)
        try:
            identity, found = Standing.unpacked(files.read(path))
            self._refuse_other(identity, run)
            return found
        except (Malformed, KeyError, TypeError, AttributeError) as error:
            raise Refused(
                "[memory-lost] what the site remembers of the run cannot be read "
                f"('{path.name}'): it does not go on"
            ) from error

    def begun(self, run: str) -> str:
        """Return the transcript of a run in which nothing was said."""
        return first_transcript(self.agreement.hash, run)

    def begin(self, run: str) -> Standing:
        """Draw a run's secrets: nothing was said, and no key but its own is known."""
        secret, seed = os.urandom(32).hex(), os.urandom(32).hex()
        none = np.zeros(0, np.uint64)
        drawn = Standing(self.begun(run), none, secret=secret, seed=seed)
        return replace(drawn, masked=drawn.key)

    def end(self, run: str | None = None) -> None:
        """Forget a run, with its secrets; of None, those that never ended in time."""
        if run is not None:
            self._memory.pop(run, None)
            shared.cache_clear()
        if self._folder is None:
            return
        old = time.time() - LASTS
        for path in self._folder.glob(f"*{SUFFIX}"):
            if path.stat().st_mtime < old or (run and path == self._path(run)):
                path.unlink()

    def save(self, run: str, standing: Standing) -> None:
        """Remember where a run stands; on disk when it returns."""
        path = self._path(run)
        if path is None:
            self._memory[run] = standing
            return
        files.write(path, standing.packed(self._identity(run)), private=True)

    def answered(self, standing: Standing, request: Request) -> bool:
        """Whether a request repeats the last step; refuse steps out of their order."""
        if request.step == standing.step > 0:
            if bodies_digest(request.bodies) == standing.asked:
                return True
            raise Refused(
                f"[repeated-step] step {request.step} was answered, and is asked "
                "again with other queries: each step is answered once"
            )
        if request.step != standing.step + 1:
            raise Refused(
                f"[other-step] step {request.step} is not the one after "
                f"{standing.step}, the last that this site answered in the run"
            )
        return False

    def hear(self, standing: Standing, request: Request) -> Standing:
        """Check the answers to the last step, and go on with their transcript.

        All sites must have been shown the same, or their masks do not cancel.
        """
        flats = self._relayed(standing, request)
        transcript = next_transcript(standing.transcript, standing.asked, flats)
        if standing.step:
            return replace(standing, transcript=transcript)
        keys = tuple(flat.astype("<u8").tobytes().hex() for flat in flats)
        if len(set(keys)) < len(keys):
            raise Refused("[repeated-key] two sites announced the same key of the run")
        return replace(standing, transcript=transcript, keys=keys)

    def admit(self, query: Query[Any], *, noise: bool = False) -> None:
        """Refuse a query of another set of sites; with `noise` all but releases."""
        if noise != query.released:
            agreed = "all is released with noise" if noise else "there is no noise"
            raise Refused(
                f"[other-query] '{query.kind}', and in the agreed run {agreed}"
            )
        pool = None if query.task is None else query.task.pool
        if pool is not None and pool.silos != len(self.agreement.sites):
            raise Refused(
                f"[wrong-sites] a sum over {pool.silos} sites, and "
                f"{len(self.agreement.sites)} agreed"
            )

    def mask(
        self, standing: Standing, request: Request, flat: NDArray[np.uint64]
    ) -> Standing:
        """Return where the run stands once these numbers are sent, under masks."""
        every = zip(self.agreement.sites, standing.keys, strict=True)
        others = {site: bytes.fromhex(k) for site, k in every if site != self.name}
        secret, info = bytes.fromhex(standing.secret), _said(standing, request)
        mask = masks.mask(secret, self.name, others, info, len(flat))
        return replace(
            standing,
            step=request.step,
            asked=bodies_digest(request.bodies),
            masked=masks.add([flat, mask]),
        )

    def source(self, standing: Standing, request: Request) -> Source:
        """Return what this step's noise is drawn from: the same for the same step."""
        seed, info = bytes.fromhex(standing.seed), _said(standing, request)
        return keyed_source(hmac.digest(seed, b"pffl noise" + info, "sha256"))

    def _relayed(
        self, standing: Standing, request: Request
    ) -> list[NDArray[np.uint64]]:
        """Return every site's masked numbers, in the sites' order."""
        sites, step = self.agreement.sites, standing.step
        if len(request.relay) != len(sites):
            raise Refused(
                f"[wrong-relay] {len(request.relay)} answers to step {step} were "
                f"relayed, and there are {len(sites)} sites"
            )
        flats = []
        for site, content in zip(sites, request.relay, strict=True):
            try:
                answer = read_answer(content)
                self._judge(site, answer, request.run, standing)
                flats.append(read_masked(answer, len(standing.masked)))
            except Malformed as error:
                raise Refused(
                    f"[wrong-relay] what was relayed as the answer of '{site}' to "
                    f"step {step} is none: {error}"
                ) from error
        if not np.array_equal(flats[self.index], standing.masked):
            raise Refused(
                f"[wrong-relay] what was relayed as this site's answer to step {step} "
                "is not"
            )
        return flats

    def _judge(self, site: str, answer: Answer, run: str, standing: Standing) -> None:
        """Refuse an answer that is not the one site's, to the very same queries."""
        wanted = {
            "silo": site,
            "run": run,
            "step": standing.step,
            "transcript": standing.transcript,
            "asked": standing.asked,
            "schema": self.agreement.schema.hash,
            "refusal": "",
        }
        for name, value in wanted.items():
            if getattr(answer, name) != value:
                raise Malformed(f"[wrong-relay] its '{name}' is another")
        key = self.agreement.keys[site]
        if not key.verify(signed_content(answer), answer.signature):
            raise Refused(
                f"[not-signed] what was relayed as the answer of '{site}' is not "
                "signed with the key that this site knows"
            )

    def _path(self, run: str) -> Path | None:
        """Where a run is remembered: its name is the server's to choose."""
        if self._folder is None:
            return None
        return self._folder / f"{files.digest(run)[:32]}{SUFFIX}"

    def _identity(self, run: str) -> dict[str, str]:
        known = {"site": self.name, "run": run, **self._known}
        return {**known, "federation": self.agreement.hash}

    def _refuse_other(self, identity: Mapping[str, Any], run: str) -> None:
        found = [key for key, *_ in differences(identity, self._identity(run))]
        if found:
            raise Refused(
                f"[other-run] the run began with another {' and '.join(found)}: it "
                "does not go on"
            )


def _said(standing: Standing, request: Request) -> bytes:
    """Return a hash of all that was said, this request included."""
    asked = bodies_digest(request.bodies)
    return files.digest(standing.transcript, asked, str(request.step)).encode()
