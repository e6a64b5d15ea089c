"""Runs on disk: locked before the training, written whole, read with suspicion.

result.json         the verdict and its numbers
certificate.json    verdicts and statements, with the evidence that all follow from
model.safetensors   parameters, multipliers, scaling, schema
history.csv         one line per round
run.toml            the run file that repeats the run
card.md, report.html
manifest.json       SHA-256 of each of these

Audits of other models are saved the same way, so that both can be verified.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pffl import driver, files, records
from pffl._solve import solve
from pffl.callbacks import Callback
from pffl.config import SPEC as SPEC
from pffl.config import Job
from pffl.errors import ArtefactError, UsageError
from pffl.evidence.conclude import Conclusions
from pffl.evidence.looks import LOOKS, Looks
from pffl.evidence.record import Evidence
from pffl.models.predictor import Predictor, read_model, write_model
from pffl.solution import Result, Solution

RESULT = "result.json"
MODEL = "model.safetensors"
HISTORY = "history.csv"
CERTIFICATE = "certificate.json"
REPORT = "report.html"
CARD = "card.md"
MANIFEST = "manifest.json"
LOCK = ".lock"
RECORD, SESSION = "record.jsonl", "session.json"  # of a deployed run
STEPS = "steps"  # where its server resumes, under secure sums
STOPPED = {driver.SPEC, driver.LOG}
FORMAT, VERSION = "pffl run directory", 2
READABLE = (1, 2, 3)  # 1 was pffl 0.1.0


# Writing


@dataclass(frozen=True)
class RunDirectory:
    """A directory that belongs to this process for the time of a run."""

    directory: Path

    def save(self, found: Result, spec_text: str) -> Path:
        """Write a run or an audit; what a stopped run left under its manifest goes."""
        stale = self._known()
        written = {
            **derived(found.conclusions, found.looks),
            MODEL: write_model(found.predictor),
            SPEC: spec_text.encode(),
        }
        if found.evidence.trained:
            written[HISTORY] = files.csv_text(found.history_rows()).encode()
        self._write(written, {})
        files.remove(self.directory / n for n in sorted(set(stale) - set(written)))
        return self.directory

    def add(self, name: str, content: bytes) -> None:
        """Write one more file (a page, say) and enter it in the manifest."""
        self._write({name: content}, self._known())

    def _known(self) -> dict[str, str]:
        there = (self.directory / MANIFEST).exists()
        return read_manifest(self.directory) if there else {}

    def _write(self, written: Mapping[str, bytes], known: Mapping[str, str]) -> None:
        hashes = {name: files.digest(content) for name, content in written.items()}
        manifest = manifest_text({**known, **hashes})
        files.write_all(self.directory, {**written, MANIFEST: manifest})


def manifest_text(hashes: Mapping[str, str]) -> bytes:
    """Content of a manifest."""
    plain = {
        "format": FORMAT,
        "version": VERSION,
        "files": dict(sorted(hashes.items())),
    }
    return files.json_text(plain).encode()


def derived(found: Conclusions, looks: Looks) -> dict[str, bytes]:
    """Return evidence and conclusions, as files.

    A run that was interrupted states nothing, and does not count as a look.
    """
    evidence = found.evidence
    plain = {CERTIFICATE: found.certified(), RESULT: found.result()}
    written = {name: files.json_text(part).encode() for name, part in plain.items()}
    text = b"" if evidence.stopped == "interrupted" else looks.text(evidence)
    return {**written, LOOKS: text} if text else written


def save(
    solution: Result, directory: str | os.PathLike[str], spec_text: str = ""
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
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = solution.save(f"{folder}/run")
    ...     (run / "certificate.json").exists()
    True
    """
    with lock(directory, unfinished=True) as place:
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

    One that stays empty is taken away again. One with a run that was stopped is
    refused, unless `unfinished` asks for it, and so is one with a run that is finished,
    unless `finished` does (fault 88).
    """
    place = Path(directory)
    held = ExitStack()
    try:
        place.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(place, unfinished, finished)
        held.enter_context(files.lock(place / LOCK))
    except OSError as error:
        raise files.cannot_write(place, error) from error
    except files.Locked as error:
        holder = "process unknown"
        with suppress(OSError, ValueError):
            holder = (place / LOCK).read_text("utf-8") or holder
        raise ArtefactError("lock-held:lock-2", place=place, holder=holder) from error
    try:
        with held:
            _refuse_foreign(place, unfinished, finished)
            with suppress(OSError):
                (place / LOCK).write_text(f"process {os.getpid()}", "utf-8")
            yield RunDirectory(place)
    finally:
        with suppress(OSError):  # no trace where nothing was saved
            if all(entry.name == LOCK for entry in place.iterdir()):
                (place / LOCK).unlink(missing_ok=True)
                place.rmdir()


def make_next(parent: str | os.PathLike[str], name: str) -> Path:
    """Make the first free of ``parent/name-001``, ``parent/name-002`` and so on."""
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-.").lower() or "run"
    place = Path(parent) / f"{stem}-000"
    while True:
        place = next_free(place)
        try:
            place.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise files.cannot_write(place, error) from error
        return place


def next_free(place: Path) -> Path:
    """Return the first of NAME-002, NAME-003 and so on that is not there.

    >>> next_free(Path("no-such-folder/compas-007")).name
    'compas-008'
    """
    stem, dash, number = place.name.rpartition("-")
    if not (dash and number.isdecimal()):
        stem, number = place.name, "001"
    counts = itertools.count(int(number) + 1)
    names = (f"{stem}-{count:0{len(number)}d}" for count in counts)
    return next(free for name in names if not (free := place.with_name(name)).exists())


def _refuse_foreign(place: Path, unfinished: bool, finished: bool) -> None:
    """Refuse a directory with files in it that no run wrote, or with another run."""
    names = {entry.name for entry in place.iterdir()} - {LOCK}
    names = {n for n in names if not (n.startswith(".") and n.endswith(".tmp"))}
    stopped = bool(names & STOPPED)
    if stopped and not unfinished:
        raise ArtefactError("stopped-run", place=place)
    names -= STOPPED | {RECORD, SESSION, STEPS}
    if names and MANIFEST not in names:
        shown = ", ".join(sorted(names)[:3])
        raise ArtefactError("file-exists:refuse-foreign", place=place, shown=shown)
    if names:
        read_manifest(place)
    if names and not (stopped or finished):
        raise UsageError("finished-run", place=place, next_free=next_free(place))


# Reading


@dataclass(frozen=True)
class _Manifest(records.Record):
    format: str
    version: int
    files: dict[str, str]


def read_manifest(directory: Path) -> dict[str, str]:
    """Return file → SHA-256, or say that this is no run directory."""
    path = directory / MANIFEST
    if not path.is_file():
        raise ArtefactError(
            "no-run:read-manifest", directory=directory, manifest=MANIFEST
        )
    source = f"'{path}' is not a manifest of pffl"
    found = records.read(_Manifest, files.read(path), source=source)
    if found.format != FORMAT or found.version not in READABLE:
        theirs = f"{found.format!r}, version {found.version!r}"
        known = f"{FORMAT!r}, version {VERSION}"
        raise ArtefactError(
            "other-format:read-manifest", path=path, theirs=theirs, known=known
        )
    foreign = [n for n in found.files if Path(n).name != n or n in ("", "..")]
    if foreign:
        raise ArtefactError("outside-directory", path=path, foreign=foreign)
    return found.files


@dataclass(frozen=True, eq=False, repr=False)
class SavedRun(Result):
    """A run or an audit that was saved: it has what a `Solution` has.

    Attributes
    ----------
    directory
        Where it lies.
    predictor
        `model.safetensors`: the model with the preparation of its tables.
    spec_text
        `run.toml`.
    mismatches
        Files that are not as the manifest knows them; empty if the record is verified.
    """

    directory: Path
    predictor: Predictor
    spec_text: str
    mismatches: tuple[str, ...]

    @property
    def verified(self) -> bool:
        """Whether every file is as the run left it."""
        return not self.mismatches

    @cached_property
    def evidence(self) -> Evidence:  # type: ignore[override]
        """What was declared and measured, from `certificate.json`."""
        return read_evidence(self.directory)

    @property
    def looks(self) -> Looks:
        """The looks at test rows that its folder counts."""
        return Looks.of(self.directory)

    def history_rows(self) -> list[dict[str, Any]]:
        """Return `history.csv` as plain rows."""
        return read_history(self.directory / HISTORY)


def read_history(path: Path) -> list[dict[str, Any]]:
    """Read a file of rounds: numbers, names, None where nothing was measured."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {name: _number(text) for name, text in row.items()}
            for row in csv.DictReader(file)
        ]


def _number(text: str) -> Any:
    try:
        return float(text) if text else None
    except ValueError:
        return text


def read_evidence(directory: Path) -> Evidence:
    """Read what was measured, of a run or of an audit.

    Runs of pffl 0.1.0 have no such file; one that is repeated has.
    """
    path = directory / CERTIFICATE
    if not path.is_file() and (directory / RESULT).is_file():
        raise ArtefactError(
            "file-missing:read-evidence", directory=directory, certificate=CERTIFICATE
        )
    plain = records.read(dict[str, Any], files.read(path), source=f"'{path}'")
    if not isinstance(plain.get("evidence"), dict):
        raise ArtefactError("other-format:read-evidence", path=path)
    return Evidence.from_dict(plain["evidence"])


def read_run(directory: str | os.PathLike[str], *, module: object = None) -> SavedRun:
    """Read a run directory.

    Parameters
    ----------
    directory
        What `save` wrote.
    module
        Of a network with a module of your own; see `read_model`.
    """
    place = Path(directory)
    hashes = read_manifest(place)
    if not (place / MODEL).is_file():
        raise ArtefactError("file-missing:read-run", place=place, model=MODEL)
    expected = {RESULT, MODEL, SPEC, *hashes}
    expected |= {HISTORY} if (place / HISTORY).is_file() else set()
    mismatches = [_mismatch(place / n, hashes.get(n)) for n in sorted(expected)]
    changed = tuple(problem for problem in mismatches if problem)
    spec = files.read(place / SPEC) if (place / SPEC).is_file() else b""
    predictor = read_model(place / MODEL, module=module)
    return SavedRun(place, predictor, spec.decode(errors="replace"), changed)


def _mismatch(path: Path, known: str | None) -> str | None:
    if not path.is_file():
        return f"{path.name} is missing"
    if known is None:
        return f"{path.name} is not in the manifest"
    same = files.digest(files.read(path)) == known
    return None if same else f"{path.name} was changed after the run"


def load(
    path: str | os.PathLike[str], *, module: object = None
) -> SavedRun | Predictor:
    """Read what was saved: a run or an audit, or the file of a model.

    Parameters
    ----------
    path
        The directory of a run, or a file of `Predictor.save`. A model that was changed
        after its run is refused, unless its file is named.
    module
        Of a network with a module of your own: one of that class, built as it was for
        training. Its weights are those of the file; no code is ever loaded from one.

    Returns
    -------
    SavedRun or Predictor
        Of a directory all that a `Solution` has; of a file the model, with the
        preparation of its tables.

    Raises
    ------
    ArtefactError
        The file is damaged, foreign, or was changed after its run.

    Examples
    --------
    >>> import tempfile
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = pffl.load(solution.save(f"{folder}/run"))
    ...     again.status, bool((again.w == solution.w).all())
    ('met', True)
    """
    place = Path(path)
    if not place.exists():
        raise ArtefactError("file-missing:load", place=place)
    if not place.is_dir():
        return read_model(place, module=module)
    found = read_run(place, module=module)
    if any(MODEL in text for text in found.mismatches):
        raise ArtefactError("changed-file:load", place=place / MODEL)
    return found


def run_of(model: Path) -> Path | None:
    """Return the run directory that a path is, or that the file of a model is in."""
    folder = model if model.is_dir() else model.parent
    inside = model.name == MODEL and (folder / CERTIFICATE).is_file()
    return folder if model.is_dir() or inside else None


def model_of(model: object) -> tuple[Predictor, Evidence | None]:
    """Return the predictor of a result or of a file, and the evidence of its run."""
    if isinstance(model, str | os.PathLike):
        model = load(run_of(Path(model)) or model)
    if isinstance(model, Predictor):
        return model, None
    if isinstance(model, Result):
        return model.predictor, model.evidence
    raise UsageError("not-a-model", name=type(model).__name__)


# Training in a directory


def run(
    job: Job[Any],
    place: RunDirectory,
    *,
    callbacks: Sequence[Callback] = (),
    report: bool = True,
    say: Callable[[str], object] = lambda text: None,
) -> Solution:
    """Train what a run file describes, and save it in a directory that is held.

    A run that was stopped there resumes. One that stops before it has anything to go on
    with leaves nothing behind.

    Parameters
    ----------
    job
        What to run.
    place
        The directory.
    callbacks
        Shown between rounds.
    report
        Whether to also write a page to open.
    say
        Told where a run that was stopped resumes, and what takes its time before it.
    """
    from pffl._report.page import write_report

    fresh = not (place.directory / driver.SPEC).exists()
    checkpoint, spec = driver.Log(place.directory), job.spec
    seed, engine = spec.settings.seed, spec.settings.engine
    if checkpoint.seed is not None:
        seed = checkpoint.seed
        say(f"going on after message {checkpoint.messages}")
    seed = secrets.randbits(32) if seed is None else seed
    if spec.constraint is not None and spec.constraint.open:
        say("choosing the bound on training rows that are set aside")
    text = job.dump(place.directory, seed=seed)
    if fresh:  # of a run that was stopped, what was written down stays
        files.write(place.directory / driver.SPEC, text.encode())
    try:
        solution = solve(
            job.federation,
            spec.constraint,
            model=job.model,
            method=spec.method,
            engine=engine,
            options=spec.options,
            random_state=seed,
            callbacks=callbacks,
            checkpoint=checkpoint,
            about=spec.about,
            secure_sum=job.secure_sum,
            privacy=spec.privacy,
        )
        looks = Looks.of(place.directory)
        solution = replace(solution, evidence=looks.counted(solution.evidence))
        place.save(solution, text)
        interrupted = solution.status == "interrupted"
        if not interrupted:
            write_report(place, solution.conclusions, page=report)
        if not (interrupted and checkpoint.messages):
            checkpoint.remove()
    except BaseException:
        if fresh and checkpoint.messages < 2:  # rows were counted at most
            checkpoint.remove()
        raise
    return solution
