"""A run directory: locked before the training, written whole, read with suspicion."""

from __future__ import annotations

import itertools
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pffl import files, log, records
from pffl.data.schema import Schema
from pffl.errors import ArtefactError, UsageError
from pffl.evidence.conclude import Conclusions
from pffl.evidence.looks import LOOKS, Looks
from pffl.evidence.record import Evidence
from pffl.models import Inputs, Model
from pffl.models.model_file import read_model, write_model
from pffl.models.predictor import Predictor
from pffl.typing import FloatArray

if TYPE_CHECKING:
    from pffl._audit import Audit
    from pffl.solution import Solution

RESULT = "result.json"
MODEL = "model.safetensors"
HISTORY = "history.csv"
SPEC = "run.toml"
EVIDENCE = "evidence.json"
CERTIFICATE = "certificate.json"
REPORT = "report.html"
CARD = "card.md"
MANIFEST = "manifest.json"
LOCK = ".lock"
OWNER = ".owner.json"
RECORD, SESSION = "record.jsonl", "session.json"  # of a deployed run
STEPS = "steps"  # what its server goes on from, under secure sums
STOPPED = {log.SPEC, log.LOG}
FORMAT = "pffl run directory"
RESULT_FORMAT = "pffl.result"
VERSION = 2
READABLE = (1, 2, 3)  # 1 was pffl 0.1.0


@dataclass(frozen=True)
class RunDirectory:
    """A directory that belongs to this process for the time of a run."""

    directory: Path

    def save(self, solution: Solution, spec_text: str) -> Path:
        """Write the run; what a stopped one left under its manifest goes away."""
        stale = self._known()
        written = {
            **derived(solution.conclusions, Looks()),
            MODEL: write_model(solution.predictor),
            HISTORY: files.csv_text(solution.history_rows()).encode(),
            SPEC: spec_text.encode(),
        }
        self._write(written, {})
        files.remove(self.directory / n for n in sorted(set(stale) - set(written)))
        return self.directory

    def save_audit(self, audit: Audit, spec_text: str) -> Path:
        """Write what was found of a model from elsewhere, and all to verify it."""
        model = {MODEL: write_model(audit.predictor), SPEC: spec_text.encode()}
        self._write({**derived(audit.conclusions, audit.audited.looks), **model}, {})
        return self.directory

    def begin(self, spec_text: str) -> None:
        """Write down which run is about to start.

        Of a run that was stopped there, what was written down then stays.
        """
        path = self.directory / log.SPEC
        if not path.exists():
            files.write(path, spec_text.encode())

    def add(self, name: str, content: bytes) -> None:
        """Write one more file (a page, say) and enter it in the manifest."""
        self._write({name: content}, self._known())

    def _known(self) -> dict[str, str]:
        if not (self.directory / MANIFEST).exists():
            return {}
        return read_manifest(self.directory)

    def _write(self, written: Mapping[str, bytes], known: Mapping[str, str]) -> None:
        hashes = {name: files.digest(content) for name, content in written.items()}
        manifest = manifest_text({**known, **hashes})
        files.write_all(self.directory, {**written, MANIFEST: manifest})


def derived(found: Conclusions, looks: Looks) -> dict[str, bytes]:
    """Return evidence and conclusions, as files.

    A run that was interrupted gets no certificate, which is what counts as a look.
    """
    evidence = found.evidence
    plain = {EVIDENCE: evidence.as_dict(), RESULT: found.result()}
    if evidence.stopped != "interrupted":
        plain[CERTIFICATE] = found.certified()
    written = {name: files.json_text(part).encode() for name, part in plain.items()}
    log = looks.text(evidence) if CERTIFICATE in plain else None
    return written if log is None else {**written, LOOKS: log}


def save(
    solution: Solution | Audit,
    directory: str | os.PathLike[str],
    spec_text: str = "",
) -> Path:
    """Write the run directory of a solution, or of an audit.

    Parameters
    ----------
    solution
        What `solve` or `audit` returned.
    directory
        A new or empty directory, or that of a run that was stopped.
    spec_text
        The run file that repeats the run.

    Returns
    -------
    Path
        The directory.

    Raises
    ------
    UsageError
        The directory holds a finished run: it is never replaced.
    ArtefactError
        It cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = pffl.save(solution, f"{folder}/run")
    ...     (run / "certificate.json").exists()
    True
    """
    from pffl._audit import Audit

    with lock(directory, unfinished=True) as place:
        if isinstance(solution, Audit):
            return place.save_audit(solution, spec_text)
        return place.save(solution, spec_text)


# Locking


@contextmanager
def lock(
    directory: str | os.PathLike[str],
    *,
    unfinished: bool = False,
    finished: bool = False,
) -> Iterator[RunDirectory]:
    """Hold a directory; refuse one that holds something else or is in use (fault 70).

    A directory that was made for this and stays empty is taken away again. One with a
    run that was stopped is refused, unless `unfinished` asks for it, and so is one with
    a run that is finished, unless `finished` does (fault 88).
    """
    place = Path(directory)
    made = not place.exists()
    try:
        place.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(place, unfinished, finished)
    except OSError as error:
        raise files.cannot_write(place, error) from error
    held = ExitStack()
    try:
        held.enter_context(files.lock(place / LOCK))
    except files.Locked as error:
        raise ArtefactError(
            f"[lock-held] '{place}' is in use by another run ({_owner(place)}): wait "
            "for it, or choose another directory"
        ) from error
    try:
        with held:
            try:
                _refuse_foreign(place, unfinished, finished)
                files.write(place / OWNER, _me())
                yield RunDirectory(place)
            finally:
                _tidy(place)
    finally:
        if made:
            with suppress(OSError):
                place.rmdir()


@contextmanager
def lock_next(parent: str | os.PathLike[str], name: str) -> Iterator[RunDirectory]:
    """Hold the first free of ``parent/name-001``, ``parent/name-002`` and so on."""
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-.").lower() or "run"
    number = 1
    while True:
        place = Path(parent) / f"{stem}-{number:03d}"
        try:
            place.mkdir(parents=True)
            break
        except FileExistsError:
            number += 1
        except OSError as error:
            raise files.cannot_write(place, error) from error
    try:
        with lock(place) as held:
            yield held
    finally:
        with suppress(OSError):
            place.rmdir()


def next_free(place: Path) -> Path:
    """Return the first of NAME-002, NAME-003 and so on that is not there.

    >>> next_free(Path("no-such-folder/compas-007")).name
    'compas-008'
    """
    stem, dash, number = place.name.rpartition("-")
    if not (dash and number.isdecimal()):
        stem, number = place.name, "001"
    for count in itertools.count(int(number) + 1):
        free = place.with_name(f"{stem}-{count:0{len(number)}d}")
        if not free.exists():
            break
    return free


def _refuse_foreign(place: Path, unfinished: bool, finished: bool) -> None:
    """Refuse a directory with files in it that no run wrote, or with another run."""
    names = {entry.name for entry in place.iterdir()} - {LOCK, OWNER}
    names = {n for n in names if not (n.startswith(".") and n.endswith(".tmp"))}
    if names & STOPPED and not unfinished:
        raise ArtefactError(
            f"[stopped-run] '{place}' holds a run that was stopped: go on with it "
            f"(pffl run --resume '{place}'), or choose another directory"
        )
    stopped = bool(names & STOPPED)
    names -= STOPPED | {RECORD, SESSION, STEPS}
    if names and MANIFEST not in names:
        shown = ", ".join(sorted(names)[:3])
        raise ArtefactError(
            f"[file-exists] '{place}' is not empty and not a run directory (it holds "
            f"{shown}): choose another one"
        )
    if names:
        read_manifest(place)
    if names and not (stopped or finished):
        raise UsageError(
            f"[finished-run] '{place}' holds a finished run, which is kept: choose "
            f"another directory, such as '{next_free(place)}'"
        )


def _tidy(place: Path) -> None:
    """Leave no trace of the lock where nothing was saved."""
    with suppress(OSError):
        (place / OWNER).unlink(missing_ok=True)
        if not any(entry.name != LOCK for entry in place.iterdir()):
            (place / LOCK).unlink(missing_ok=True)


def _me() -> bytes:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    plain = {"process": os.getpid(), "machine": platform.node(), "since": since}
    return json.dumps(plain).encode()


def _owner(place: Path) -> str:
    try:
        owner = json.loads((place / OWNER).read_bytes())
        who = f"process {owner['process']} on {owner['machine']}"
        return f"{who}, since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "owner unknown"


# Reading


@dataclass(frozen=True)
class _Manifest(records.Record):
    format: str
    version: int
    files: dict[str, str]


def manifest_text(hashes: Mapping[str, str]) -> bytes:
    """Content of a manifest."""
    known = dict(sorted(hashes.items()))
    return files.json_text(
        {"format": FORMAT, "version": VERSION, "files": known}
    ).encode()


def read_manifest(directory: Path) -> dict[str, str]:
    """Return file → SHA-256, or say that this is no run directory."""
    path = directory / MANIFEST
    if not path.is_file():
        raise ArtefactError(
            f"[no-run] '{directory}' is not a run directory: no {MANIFEST}"
        )
    source = f"'{path}' is not a manifest of pffl"
    found = records.read(_Manifest, files.read(path), source=source)
    if found.format != FORMAT or found.version not in READABLE:
        raise ArtefactError(
            f"[other-format] '{path}' is of format {found.format!r}, version "
            f"{found.version!r}; this is {FORMAT!r}, version {VERSION}"
        )
    names = found.files
    foreign = [name for name in names if Path(name).name != name or name in ("", "..")]
    if foreign:
        raise ArtefactError(
            f"[outside-directory] '{path}' names files outside its directory: {foreign}"
        )
    return names


@dataclass(frozen=True, eq=False)
class RunRecord:
    """A run that was saved.

    Attributes
    ----------
    directory
        Where it lies.
    result
        `result.json`.
    predictor
        `model.safetensors`: the model with the preparation of its tables.
    spec_text
        `run.toml`.
    mismatches
        Files that are not as the manifest knows them; empty if the record is verified.
    """

    directory: Path
    result: Mapping[str, Any]
    predictor: Predictor
    spec_text: str
    mismatches: tuple[str, ...]

    @property
    def verified(self) -> bool:
        """Whether every file is as the run left it."""
        return not self.mismatches

    @cached_property
    def evidence(self) -> Evidence:
        """`evidence.json`: what was declared and measured."""
        return read_evidence(self.directory)

    @property
    def looks(self) -> Looks:
        """The looks at held-out rows that its folder counts."""
        return Looks.of(self.directory)

    @property
    def w(self) -> FloatArray:
        """Parameters of the model."""
        return self.predictor.w

    @property
    def multipliers(self) -> FloatArray:
        """λ of each cell."""
        return self.predictor.multipliers

    @property
    def model(self) -> Model:
        """The model, bound to its schema and scaling."""
        return self.predictor.model

    @property
    def inputs(self) -> Inputs:
        """How raw features become the model's inputs."""
        return self.predictor.inputs

    @property
    def schema(self) -> Schema:
        """Names of features, groups and labels."""
        return self.predictor.schema

    def require_verified(self) -> RunRecord:
        """Return self, or raise if a file was changed after the run."""
        if self.mismatches:
            raise ArtefactError(
                f"[changed-file] '{self.directory}' is not verified: "
                f"{'; '.join(self.mismatches)}"
            )
        return self


def read_evidence(directory: Path) -> Evidence:
    """Read what was measured, of a run or of an audit.

    Runs of pffl 0.1.0 have no such file; one that is repeated has.
    """
    path = directory / EVIDENCE
    if not path.is_file() and (directory / RESULT).is_file():
        raise ArtefactError(
            f"[file-missing] '{directory}' holds no {EVIDENCE}; a run that is "
            f"repeated writes one: pffl run '{directory}' --out NEW"
        )
    plain = records.read(dict[str, Any], files.read(path), source=f"'{path}'")
    return Evidence.from_dict(plain)


def load(
    directory: str | os.PathLike[str],
    *,
    require_verified: bool = False,
    module: object = None,
) -> RunRecord:
    """Read a run directory.

    Parameters
    ----------
    directory
        What `save` wrote.
    require_verified
        Refuse a directory that was edited by hand, instead of saying so in
        `RunRecord.mismatches` (fault 74).
    module
        Of a network with a module of your own; see `read_model`.
    """
    place = Path(directory)
    hashes = read_manifest(place)
    absent = [name for name in (RESULT, MODEL) if not (place / name).is_file()]
    if absent:
        raise ArtefactError(
            f"[file-missing] '{place}' is incomplete: no {', '.join(absent)}"
        )
    result = _result(place / RESULT)
    expected = {RESULT, MODEL, SPEC, *hashes}
    if result.get("method") is not None:  # an audit has no history
        expected.add(HISTORY)
    mismatches = [_mismatch(place / n, hashes.get(n)) for n in sorted(expected)]
    spec = files.read(place / SPEC) if (place / SPEC).is_file() else b""
    record = RunRecord(
        place,
        result,
        read_model(place / MODEL, module=module),
        spec.decode("utf-8", errors="replace"),
        tuple(problem for problem in mismatches if problem),
    )
    return record.require_verified() if require_verified else record


def _mismatch(path: Path, known: str | None) -> str | None:
    if not path.is_file():
        return f"{path.name} is missing"
    if known is None:
        return f"{path.name} is not in the manifest"
    same = files.digest(files.read(path)) == known
    return None if same else f"{path.name} was changed after the run"


def _result(path: Path) -> dict[str, Any]:
    source = f"'{path}' is not a result of pffl"
    result = records.read(dict[str, Any], files.read(path), source=source)
    if "status" not in result:
        raise ArtefactError(f"[bad-result] {source}: it has no status")
    found = (result.get("format", RESULT_FORMAT), result.get("version", 1))
    if found[0] != RESULT_FORMAT or found[1] not in READABLE:
        raise ArtefactError(
            f"[other-format] {source}: its format and version are {found}"
        )
    return result
