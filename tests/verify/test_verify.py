"""`verify` accepts honest runs, and notices forgeries.

The verifier stands alone (`_verify`): it gets rows, and trusts nothing else. `pffl
verify` makes words, page and card again as well. A forger changes one file, or writes
all files anew as pffl would write them; the manifest is always made to fit.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pffl
from pffl import runs
from pffl.errors import PFFLError
from tests.inside import Evidence, Looks, conclude, derived, verifier, write_report
from tests.verify.honest import RUNS, saved

Change = Callable[[Any], Any]
NO_ROWS = ("network", "noise")


@pytest.fixture(scope="module")
def shelf(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], tuple[Path, Path]]:
    """Honest runs with their rows, page and card, each made once."""
    top = tmp_path_factory.mktemp("shelf")

    @cache
    def made(name: str) -> tuple[Path, Path]:
        place, rows = saved(name, top)
        plain = json.loads((place / "certificate.json").read_text("utf-8"))["evidence"]
        found = conclude(Evidence.from_dict(plain))
        with runs.lock(place, finished=True) as held:
            write_report(held, found)
        return place, rows

    return made


def wrong(place: Path, rows: Path | None, *, alone: bool = False) -> list[str]:
    """What does not agree; `alone`: by the verifier that needs no pffl."""
    try:
        checks = (verifier.verify if alone else pffl.verify)(place, rows)
    except (PFFLError, verifier.Unreadable) as error:
        return [str(error)]
    return [str(check) for check in checks if not check.agrees]


# Honest runs


def marked(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.slow) if RUNS[name].slow else name


@pytest.mark.parametrize("name", [marked(name) for name in RUNS])
def test_an_honest_run_is_accepted(name: str, tmp_path: Path) -> None:
    place, rows = saved(name, tmp_path)
    checks = pffl.verify(place, rows)
    assert [str(check) for check in checks if not check.agrees] == []
    word = "consistent" if name.startswith(NO_ROWS) else "verified against rows"
    assert verifier.judged(checks).startswith(word)
    bare = pffl.verify(place)
    assert [str(check) for check in bare if not check.agrees] == []
    assert verifier.judged(bare).startswith("consistent")


def test_separable_rows_without_a_ridge_end_as_converged() -> None:
    from tests.verify.honest import solved

    for name in RUNS:
        if name.startswith("separable"):
            assert solved(name)[1].converged == "yes", name


def test_page_and_card_are_made_again(shelf: Any, tmp_path: Path) -> None:
    """Whatever the folder is called; the page alone says that its text was not."""
    place, rows = shelf("certified")
    moved = shutil.copytree(place, tmp_path / "elsewhere")
    assert wrong(moved, rows) == []
    made = {check.what for check in pffl.verify(moved, rows)}
    assert {"page (report.html)", "model card"} <= made
    checks = pffl.verify(shutil.copy(place / "report.html", tmp_path / "page.html"))
    assert all(check.agrees for check in checks)
    assert verifier.judged(checks).startswith("consistent")
    assert any(check.what.startswith("the page itself") for check in checks)


def test_another_version_is_not_a_failure(shelf: Any, tmp_path: Path) -> None:
    place, rows = shelf("met")

    def older(e: Any) -> None:
        e["versions"]["pffl"] = "0.2.9"

    forged = written_anew(place, tmp_path / "forged", older)
    checks = pffl.verify(forged, rows)
    assert all(check.agrees for check in checks)
    assert any("not compared: made by pffl 0.2.9" in check.what for check in checks)


def test_enough_is_tried() -> None:
    assert len(RUNS) >= 60
    assert len(FORGERIES) >= 40
    assert len(ANEW) >= 15


# One file


def put(path: str, value: Any) -> Change:
    """Set one value of a JSON file; a function gets what is there."""

    def change(plain: Any) -> Any:
        *way, last = [int(part) if part.isdigit() else part for part in path.split("/")]
        for part in way:
            plain = plain[part]
        plain[last] = value(plain[last]) if callable(value) else value
        return None

    return change


def text(old: str, new: str) -> Change:
    def change(page: str) -> str:
        assert old in page
        return page.replace(old, new, 1)

    return change


def is_text(change: Change) -> bool:
    return change.__qualname__.startswith("text")


def less(value: float) -> float:
    return 0.97 * value


C, E = "certificate.json", "evidence/"
HELD = "evidence/heldout/"
#: Run, file, change. The verifier alone must notice all but words, page and card.
FORGERIES: dict[str, tuple[str, str, Change]] = {
    "training verdict": ("impossible", C, put("verdicts/training/verdict", "met")),
    "test verdict": ("not certified", C, put("verdicts/test/verdict", "exceeded")),
    "new people": ("not certified", C, put("verdicts/new_people/verdict", "certified")),
    "verdict among figures": (
        "impossible",
        C,
        put("figures/verdicts/training/verdict", "met"),
    ),
    "status": ("impossible", C, put("figures/status", "met")),
    "training loss": ("met", C, put("figures/cells/0/train_loss", less)),
    "test loss": ("met", C, put("figures/cells/1/test_loss", less)),
    "upper end": ("met", C, put("figures/cells/0/test_upper", less)),
    "bound in the table": ("met", C, put("figures/cells/0/bound", 0.9)),
    "rows of a group": ("met", C, put("figures/cells/0/count", lambda n: n + 1)),
    "unconstrained loss": ("met", C, put("figures/cells/0/before_train_loss", less)),
    "gap": ("met", C, put("figures/gap", lambda v: v / 2)),
    "error rate": ("met", C, put("figures/groups/0/error/value", less)),
    "end of a rate": ("met", C, put("figures/groups/1/false_positive/upper", less)),
    "selection rate": ("met", C, put("figures/groups/0/selected/value", less)),
    "fairness gap": ("met", C, put("figures/test/dp_gap", less)),
    "risk": ("met", C, put("figures/train/risk", less)),
    "smallest bound": ("impossible", C, put("figures/smallest_bound", 0.5)),
    "confidence": ("met", C, put("figures/confidence", 0.99)),
    "bound of a group": ("met", C, put(E + "cells/0/bound", 0.9)),
    "sum of losses": ("met", C, put(E + "seen/cells/loss/0", less)),
    "sum of test losses": ("met", C, put(HELD + "cells/bounded_loss/0", less)),
    "count that is true": ("met", C, put(HELD + "cells/count/0", lambda _: True)),
    "log-sum": ("met", C, put(HELD + "logs/0/0/0", lambda v: 1.01 * v)),
    "bets": ("met", C, put(HELD + "bets/0/0", less)),
    "weights of bets": ("met", C, put(HELD + "bet_weights/0", [100 / 9] * 9)),
    "M": ("met", C, put(E + "terms/loss_bound", 5.0)),
    "secure sums that were none": (
        "met",
        C,
        put(E + "sites", {"names": ["all 3 sites"], "masked": 3, "floor": 40}),
    ),
    "people at two sites forgotten": (
        "masked, small groups",
        C,
        put(E + "data/shared", 0),
    ),
    "a larger floor": ("masked, small groups", C, put(E + "sites/floor", 20)),
    "reuse": ("met", C, put(E + "terms/candidates", 3)),
    "order of candidates": (
        "certified",
        C,
        put(E + "path/candidates", lambda v: v[::-1]),
    ),
    "chosen candidate": ("not certified", C, put(E + "path/chosen", 2)),
    "multiplier": ("met", C, put(E + "cells/0/multiplier", lambda v: v + 1)),
    "who is in a group": ("both labels", C, put(E + "cells/0/of", [["m", "class 1"]])),
    "a group less": ("both labels", C, put(E + "cells", lambda v: v[1:])),
    "version true": ("met", C, put("version", True)),
    "version of tomorrow": ("met", C, put("version", 99)),
    "an extra key": ("met", C, put("endorsed", "by everybody")),
    "an extra key of evidence": ("met", C, put(E + "endorsed", "yes")),
    "doubled key": ("met", C, text('"format"', '"format": "x", "format"')),
    "a number that is none": ("met", C, text('"gap": ', '"gap": NaN, "g": ')),
    "a number beyond all": ("met", C, text('"radius": 100.0', '"radius": 1e999')),
    "a whole number beyond all": (
        "met",
        C,
        text('"later": 0', '"later": 1' + "0" * 400),
    ),
    "an infinity in words": ("met", C, text('"later": 0', '"later": Infinity')),
    "a sentence": ("impossible", C, put("verdicts/training/sentence", "All is met.")),
    "a statement": ("impossible", C, put("statements/1/text", "All is met.")),
    "a look-alike name": ("met", C, put(E + "groups/0", "\u0192")),
    "date": ("met", C, put("date", "2031-01-01")),
    "result.json": ("impossible", "result.json", put("status", "met")),
    "page, a word": ("impossible", "report.html", text("impossible", "met")),
    "page, a note": ("met", "report.html", text("</h1>", "</h1><p>Approved.</p>")),
    "card": ("impossible", "card.md", text("impossible", "met")),
    "run file, seed": ("met", "run.toml", text("seed = 0", "seed = 1")),
    "run file, bound": ("met", "run.toml", text("bound = 0.685", "bound = 0.6")),
    "log of looks": ("met", "looks.jsonl", lambda page: page + page.replace("e", "f")),
}
#: What only pffl makes again: words, page, card, log; figures beside the table of
#: groups; keys that nobody reads.
WORDS = ("a sentence", "a statement", "date", "result.json", "card")
WORDS += ("page, a word", "page, a note", "log of looks", "an extra key")
WORDS += ("an extra key of evidence", "error rate", "end of a rate", "selection rate")
WORDS += ("fairness gap", "risk", "verdict among figures", "status", "gap")
WORDS += ("smallest bound", "confidence")


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_of_one_file_is_noticed(
    name: str, shelf: Any, tmp_path: Path
) -> None:
    case, file, change = FORGERIES[name]
    place, rows = shelf(case)
    forged = shutil.copytree(place, tmp_path / "forged")
    path = forged / file
    before = path.read_text("utf-8")
    if file.endswith(".json") and not is_text(change):
        plain = json.loads(before)
        change(plain)
        path.write_text(json.dumps(plain), "utf-8")
    else:
        path.write_text(change(before), "utf-8")
    assert path.read_text("utf-8") != before
    seal(forged)
    assert wrong(forged, rows), name
    if name not in WORDS:
        assert wrong(forged, rows, alone=True), name


def seal(place: Path) -> None:
    """Make the manifest fit."""
    path = place / "manifest.json"
    manifest = json.loads(path.read_text("utf-8"))
    for name in manifest["files"]:
        manifest["files"][name] = pffl.files.digest((place / name).read_bytes())
    path.write_text(json.dumps(manifest), "utf-8")


def leaves(plain: Any, way: tuple[Any, ...] = ()) -> Any:
    """Every value of a JSON file, and the way to it."""
    if isinstance(plain, dict | list):
        items = plain.items() if isinstance(plain, dict) else enumerate(plain)
        for key, part in items:
            yield from leaves(part, (*way, key))
    else:
        yield way, plain


def test_page_and_stored_figures_are_one_conclusion(shelf: Any, tmp_path: Path) -> None:
    """Why the page is made again from the evidence, and not from stored figures.

    A page that does not fit stored figures is another page. Stored figures and words
    that do not follow from the evidence are noticed by themselves, each of them, even
    without rows. So a page from either is the same page, or something is noticed.
    """
    forged = shutil.copytree(shelf("certified")[0], tmp_path / "forged")
    path = forged / C
    before = json.loads(path.read_text("utf-8"))
    skipped = ("evidence", "format", "version")  # the last two: another file
    found = [one for one in leaves(before) if one[0][0] not in skipped]
    rng = np.random.default_rng(0)
    for place in rng.choice(len(found), 25, replace=False):
        way, value = found[place]
        plain = inner = json.loads(json.dumps(before))
        for key in way[:-1]:
            inner = inner[key]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        inner[way[-1]] = 1.01 * value + 1e-6 if number else "other"
        path.write_text(json.dumps(plain), "utf-8")
        seal(forged)
        assert any(C in one for one in wrong(forged, None)), way


# All files, as pffl would write them


def written_anew(place: Path, to: Path, change: Change) -> Path:
    """Change the evidence, and write everything else as it follows from that."""
    shutil.copytree(place, to)
    plain = json.loads((place / "certificate.json").read_text("utf-8"))["evidence"]
    change(plain)
    evidence = Evidence.from_dict(plain)
    found = conclude(evidence)
    for name, content in derived(found, Looks()).items():
        (to / name).write_bytes(content)
    seal(to)
    for name in ("card.md", "report.html"):
        (to / name).unlink()
    with runs.lock(to, finished=True) as held:
        write_report(held, found)
    return to


def both(*changes: Change) -> Change:
    def change(plain: Any) -> None:
        for one in changes:
            one(plain)

    return change


def scaled(sample: str, *columns: str, by: float = 0.9) -> Change:
    """Make the losses of a sample smaller, wherever they are counted."""

    def change(e: Any) -> None:
        for part in sample.split("/"):
            e = e[int(part) if part.isdigit() else part]
        for table in ("cells", "strata", "people"):
            for column in columns:
                if column in e[table]:
                    e[table][column] = [by * v for v in e[table][column]]
        e["risk"], e["bounded_risk"] = by * e["risk"], by * e["bounded_risk"]

    return change


def sharper(e: Any) -> None:
    """Bets that were chosen in view of the rows."""
    held = e["heldout"]
    for z, row in enumerate(held["bets"]):
        held["bets"][z] = [min(2 * g, 0.98) for g in row]
        held["logs"][z] = [[2 * s for s in row] for row in held["logs"][z]]


def drop_failed(e: Any) -> None:
    """Leave out the candidates that were not shown."""
    path = e["path"]
    path["candidates"] = path["candidates"][: path["chosen"] + 1]


def next_one(e: Any) -> None:
    """Ship the candidate after the last that was shown."""
    e["path"]["chosen"] += 1
    own = e["path"]["candidates"][e["path"]["chosen"]]
    e["seen"], e["terms"]["loss_bound"] = own["training"], own["loss_bound"]


def raised(value: float) -> float:
    return value + 0.01


def more(counts: list[int]) -> list[int]:
    return [n + 1 for n in counts]


def members(e: Any) -> None:
    one, other = e["cells"][0], e["cells"][1]
    one["of"], other["of"] = other["of"], one["of"]


def exchanged(e: Any) -> None:
    one, other = e["cells"][0], e["cells"][1]
    one["cell"], other["cell"] = other["cell"], one["cell"]


def training_rows(e: Any) -> None:
    e["heldout"] = e["seen"]


def other_releases(change: Any) -> Change:
    """Change what was released, and the account of training rows with it."""

    def changed(e: Any) -> None:
        own = e["privacy"]
        own["releases"] = change(own["releases"])
        train = [o["mu"] for o in own["releases"] if o["split"] == "train"]
        own["mu"] = sum(mu**2 for mu in train) ** 0.5

    return changed


def less_gradients(releases: Any) -> Any:
    return [one for one in releases if one["name"] != "gradients"]


def renamed(releases: Any) -> Any:
    return [
        one | {"name": "sums"} if one["name"] == "gradients" else one
        for one in releases
    ]


LOSSES = ("loss", "bounded_loss")
ANEW: dict[str, tuple[str, Change]] = {
    "smaller training losses": ("impossible", scaled("seen", *LOSSES)),
    "smaller test losses": ("met", scaled("heldout", *LOSSES)),
    "smaller losses of the unconstrained model": (
        "met",
        scaled("before/samples/train", *LOSSES, by=1.2),
    ),
    "bets in view of the rows": ("met", sharper),
    "weights of bets": (
        "met",
        put("heldout/bet_weights", lambda v: [[0.99, *[0.00125] * 8] for _ in v]),
    ),
    "log-sums": ("met", put("heldout/logs", lambda v: (1.02 * np.array(v)).tolist())),
    "M by another rule": ("met", put("terms/loss_bound", 5.0)),
    "a larger bound": (
        "impossible",
        both(
            *(put(f"cells/{z}/bound", 0.9) for z in range(2)),
            put("training/constraint/bound", 0.9),
        ),
    ),
    "a group renamed": ("met", members),
    "more right predictions": (
        "met",
        both(put("heldout/strata/correct", more), put("heldout/cells/correct", more)),
    ),
    "other counts": (
        "met",
        both(
            put("seen/cells/count/0", lambda n: n + 1),
            put("seen/strata/count/0", lambda n: n + 1),
        ),
    ),
    "a gap that is closed": (
        "not converged",
        put("proofs/gap/lower", lambda v: v + 0.5),
    ),
    "a plane that is too high": (
        "impossible",
        both(*(put(f"proofs/least/{k}", raised) for k in ("lower", "upper"))),
    ),
    "a smallest bound that nobody attains": (
        "impossible",
        both(*(put(f"proofs/least/{k}", less) for k in ("lower", "upper"))),
    ),
    "another seed": ("met", put("training/seed", 5)),
    "another confidence": ("met", put("terms/confidence", 0.5)),
    "candidates in another order": (
        "certified",
        put("path/candidates", lambda v: v[::-1]),
    ),
    "a candidate that was not shown": ("not certified", next_one),
    "a smaller largest weight": ("weights", put("terms/weight_bound", 1.2)),
    "people with one row each": ("several rows", put("data/several", False)),
    "test rows that nobody trained on": ("met", put("data/overlap", lambda n: n + 7)),
    "training rows as test rows": (
        "met",
        both(put("data/fingerprint", "0" * 64), training_rows),
    ),
    "one silo": ("met", put("data/silos", 1)),
    "a model that is not the one": ("met", put("model/l2", 0.5)),
    "names exchanged": ("impossible, bounds differ", exchanged),
    "ids forgotten": (
        "several rows",
        both(put("data/by_person", False), put("data/several", False)),
    ),
    "another target": ("met", put("terms/target_gap", 1e3)),
    "a gap in a small ball": ("no ridge", put("proofs/gap/radius", 1e-3)),
    "a smaller ε": ("noise", put("privacy/epsilon", 1.0)),
    "gradients that were never released": ("noise", other_releases(less_gradients)),
    "a release of another name": ("noise", other_releases(renamed)),
    "bets under noise": ("noise", put("privacy/heldout/bet_weights", [5.0] * 3)),
    "smaller sums under noise": (
        "noise",
        put("privacy/seen/losses", lambda v: [0.5 * x for x in v]),
    ),
}


@pytest.mark.parametrize("name", ANEW)
def test_a_forger_who_writes_all_files_anew_is_caught_by_the_rows(
    name: str, shelf: Any, tmp_path: Path
) -> None:
    case, change = ANEW[name]
    place, rows = shelf(case)
    forged = written_anew(place, tmp_path / "forged", change)
    assert wrong(forged, rows), name


PATHS = ["candidates in another order", "a candidate that was not shown"]


@pytest.mark.parametrize("part", [0.9, 3.0])
def test_log_sums_that_no_losses_have_are_noticed_without_rows(
    part: float, shelf: Any, tmp_path: Path
) -> None:
    change = put("heldout/logs", lambda v: (part * np.array(v)).tolist())
    forged = written_anew(shelf("met")[0], tmp_path / "forged", change)
    assert wrong(forged, None, alone=True)


@pytest.mark.parametrize("name", PATHS)
def test_a_path_that_was_not_walked_is_noticed(
    name: str, shelf: Any, tmp_path: Path
) -> None:
    """Without rows, too: the sums of the candidates tell."""
    case, change = ANEW[name]
    forged = written_anew(shelf(case)[0], tmp_path / "forged", change)
    assert wrong(forged, None, alone=True), name


GARBAGE = (b"", b"{}", b"[1, 2]", b"null", b"\xff\xfe", b'{"format": 1}', b"[" * 50_000)


@pytest.mark.parametrize("file", ["certificate.json", "manifest.json", "run.toml"])
def test_garbage_is_refused_or_reported_never_a_crash(
    file: str, shelf: Any, tmp_path: Path
) -> None:
    place, rows = shelf("met")
    forged = shutil.copytree(place, tmp_path / "forged")
    for content in GARBAGE:
        (forged / file).write_bytes(content)
        assert wrong(forged, rows, alone=True)
        assert wrong(forged, rows)
    plain = json.loads((place / "certificate.json").read_text("utf-8"))
    shutil.copy(place / file, forged / file)
    rng = np.random.default_rng(0)
    for _ in range(30):
        text = json.dumps(plain)
        for key in rng.choice(list(plain["evidence"]), 2):
            other = {
                **plain["evidence"],
                str(key): [None, "x", -1, {}][rng.integers(4)],
            }
            text = json.dumps({**plain, "evidence": other})
        (forged / "certificate.json").write_text(text, "utf-8")
        assert wrong(forged, rows, alone=True)


# Rows


def test_one_changed_row_is_noticed(shelf: Any, tmp_path: Path) -> None:
    place, rows = shelf("met")
    with np.load(rows) as file:
        arrays = {name: file[name] for name in file.files}
    for change in ("X", "label", "split", "less"):
        other = {name: array.copy() for name, array in arrays.items()}
        if change == "X":
            other["X"][3, 0] += 0.5
        elif change == "less":
            parts = ("split", "silo", "group", "label", "X")
            other |= {name: other[name][1:] for name in parts}
        else:
            names = np.unique(other[change])
            at = np.flatnonzero(other[change] == names[0])[0]
            other[change][at] = names[1]
        np.savez(tmp_path / "other.npz", **other)
        assert wrong(place, tmp_path / "other.npz", alone=True), change


def test_a_split_that_is_not_mentioned_is_refused(shelf: Any, tmp_path: Path) -> None:
    place, rows = shelf("met")
    with np.load(rows) as file:
        arrays = {name: file[name] for name in file.files}
    split = arrays["split"].astype("U16")
    split[np.flatnonzero(split == "test")[:5]] = "unwelcome"
    np.savez(tmp_path / "other.npz", **arrays | {"split": split})
    found = wrong(place, tmp_path / "other.npz", alone=True)
    assert any("splits in the rows" in one for one in found)


# The file itself


def test_it_imports_nothing_of_ours() -> None:
    tree = ast.parse(Path(verifier.__file__).read_text("utf-8"))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert not node.level
            names.add(str(node.module).partition(".")[0])
    assert names - set(sys.stdlib_module_names) == {"numpy", "scipy", "safetensors"}


def test_it_runs_where_pffl_is_not(shelf: Any, tmp_path: Path) -> None:
    place, rows = shelf("met")
    script = tmp_path / "check.py"
    script.write_text(Path(verifier.__file__).read_text("utf-8"), "utf-8")
    code = f"import sys; sys.modules['pffl'] = None; sys.argv[0] = {str(script)!r}; "
    code += f"exec(open({str(script)!r}).read())"
    done = subprocess.run(
        [sys.executable, "-c", code, place, rows], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("verified against rows")


def test_what_no_file_can_show_is_said() -> None:
    said = " ".join(str(verifier.__doc__).split())
    said = said[said.index("No file can show") :].rstrip()
    root = Path(__file__).parents[2]
    documented = " ".join((root / "docs/certificates.md").read_text("utf-8").split())
    assert said in documented
    command = (root / "src/pffl/cli/models.py").read_text("utf-8")
    assert said in re.sub(r"\s+", " ", command)
