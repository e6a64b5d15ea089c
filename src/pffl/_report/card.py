"""A model card: Markdown with the YAML header that model hubs read, made from evidence.

What it says is what terminal, page and certificate say, in the same sentences. Names
come from data: whatever would be Markdown, HTML or YAML in them is escaped.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from html import escape
from pathlib import Path

import numpy as np

from pffl import files
from pffl._report import render_template
from pffl.errors import ArtefactError
from pffl.evidence import tables
from pffl.evidence.conclude import Conclusions, conclude
from pffl.evidence.record import About, Evidence, Training
from pffl.models.linear import LinearModel
from pffl.models.predictor import Predictor, RawForm, coefficients_of, read_model
from pffl.runs import MODEL, read_evidence
from pffl.solution import Result
from pffl.text import decimals, few, visible

FLOOR = 10  # counts below it are withheld
MAX_INPUT_NAMES = 40
MAX_INPUTS = 15  # of the table of inputs that matter
REQUIRED = ("purpose", "owner", "date")  # of `About`: a card without them reports it
SPECIAL = re.compile(r"([\\`*_\[\]|~$#])|(?<=www)(\.)|(:)(?=//)|(@)")
#: What would begin a list, or make a heading, at the start of a line.
BLOCK = re.compile(r"^(\s*)([-+](?=[\s-]|$)|=|\d+(?=[.)](?:\s|$)))")


def card(
    subject: Result | Evidence | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    purpose: str | None = None,
    owner: str | None = None,
    date: str | None = None,
    contact: str | None = None,
    license: str | None = None,
) -> str:
    """Return the model card, as Markdown with a YAML header.

    Parameters
    ----------
    subject
        A solution, an audit, evidence, or the folder of a run or an audit.
    out
        A file to write it to.
    purpose, owner, date, contact, license
        What the run did not state; see `About`.

    Returns
    -------
    str
        The card.

    Raises
    ------
    MissingExtraError
        The extra ``report`` is not installed.
    ArtefactError
        The folder holds neither a run nor an audit, or `out` cannot be written.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), random_state=0)
    >>> solution.card(owner="Unit 7").splitlines()[0]
    '---'
    """
    predictor = None
    match subject:
        case Result():
            e = subject.evidence
            predictor = subject.predictor if e.trained else None
        case Evidence():
            e = subject
        case _:
            e = read_evidence(Path(subject))
            predictor = own_model(Path(subject), e)
    given = About(purpose, owner, date, contact, license)
    stated = replace(e, about=e.about.with_more(given))
    return written(markdown(conclude(stated), predictor), out)


def written(text: str, out: str | os.PathLike[str] | None) -> str:
    """Return a text, and write it to a file if one is named."""
    if out is not None:
        try:
            Path(out).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ArtefactError(f"[cannot-write] {out}: {error.strerror}") from error
    return text


def own_model(directory: Path, e: Evidence) -> Predictor | None:
    """Return the model of a run, where its inputs can be told apart."""
    own = e.trained and e.model.linear and (directory / MODEL).is_file()
    return read_model(directory / MODEL) if own else None


def markdown(c: Conclusions, predictor: Predictor | None = None) -> str:
    """Return the card of what was measured; the same evidence gives the same bytes."""
    e = c.evidence
    grounds = [text for one in c.certificate.statements for text in one.grounds]
    counts = e.seen.of_strata("count", len(e.groups)).sum(axis=1)
    columns = [] if predictor is None else predictor.preparation.columns
    found = render_template(
        "card.md",
        {"plain": plain, "table": table, "json": _json},
        c=c,
        e=e,
        tables=tables,
        task="tabular-classification" if e.labels else "tabular-regression",
        id=re.sub(r"[^A-Za-z0-9.]+", "-", e.data.name).strip("-.").lower() or "data",
        required=REQUIRED,
        missing=missing_of(e),
        grounds=[
            text
            for text in dict.fromkeys([] if e.stopped == "interrupted" else grounds)
            if not text.endswith("(checked)")
        ],
        inputs=input_effects(predictor),
        target=None if predictor is None else predictor.schema.target,
        names=few([column.name for column in columns], most=MAX_INPUT_NAMES),
        groups=[
            {"group": group, "rows": f"{int(n):,}" if n >= FLOOR else f"below {FLOOR}"}
            for group, n in zip(e.groups, counts, strict=True)
        ],
        training=e.training if isinstance(e.training, Training) else None,
    )
    return re.sub(r"\n{3,}", "\n\n", found).rstrip() + "\n"


def missing_of(e: Evidence) -> list[str]:
    """Return what a card needs and the run does not state."""
    return [key for key in REQUIRED if vars(e.about)[key] is None]


def seal(c: Conclusions) -> str:
    """Return the SHA-256 of certificate.json."""
    return sha256(files.json_text(c.certified()).encode()).hexdigest()


# Text


def plain(text: object) -> str:
    r"""Return text that Markdown shows as it is, in one line.

    >>> print(plain("a|b <i> `c` www.x.y"))
    a\|b &lt;i&gt; \`c\` www\.x.y
    """
    shown = SPECIAL.sub(r"\\\g<0>", escape(visible(str(text)), quote=False))
    return BLOCK.sub(_not_a_list, shown)


def _not_a_list(found: re.Match[str]) -> str:
    space, sign = found[1], found[2]
    return f"{space}{sign}\\" if sign[0].isdigit() else f"{space}\\{sign}"


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return mappings, all with the same keys, as a table; nothing for none."""
    if not rows:
        return ""
    names = list(rows[0])
    lines = [[plain(name) for name in names], ["---", *["---:"] * (len(names) - 1)]]
    lines += [[plain(row[name]) for name in names] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _json(value: object) -> str:
    """Return JSON, which is YAML; `visible` spells out what YAML does not take."""
    known = visible(value) if isinstance(value, str) else value
    return json.dumps(known, ensure_ascii=False, allow_nan=False)


# Inputs


@dataclass(frozen=True)
class InputEffects:
    """The inputs with the largest effect of one standard deviation.

    `others` counts the inputs that are not in the table.
    """

    words: str
    rows: Sequence[Mapping[str, str]]
    others: int


def input_effects(predictor: Predictor | None) -> InputEffects | None:
    """Rank the inputs; None of a network, or where their spread is not known."""
    if predictor is None or not isinstance(predictor.model, LinearModel):
        return None
    form = RawForm.of(predictor, "a ranking of inputs")
    effects = form.coefficients * form.deviation
    if np.isnan(effects).all():
        return None
    several, schema = len(effects) > 1, predictor.schema
    size = np.ptp(effects, axis=0) if several else np.abs(effects[0])
    largest = np.argsort(-size, kind="stable")[:MAX_INPUTS]
    shown, _ = coefficients_of(predictor, largest)
    numbers = [name for name in shown if name.startswith(("coefficient", "per_sd"))]
    titles = [
        name.replace("coefficient", "per unit").replace(
            "per_sd", "per standard deviation"
        )
        for name in numbers
    ]
    words = "What one standard deviation more of an input adds to the "
    if not schema.labels:
        words += f"predicted '{schema.target}'"
    elif len(schema.labels) == 2:
        words += f"log-odds of '{schema.label_names[1]}'"
    else:
        words = (
            "How far one standard deviation more of an input moves the scores of two "
            "classes apart, at most"
        )
    rows = [
        {"input": visible(name), **dict(zip(titles, map(decimals, row), strict=True))}
        for name, *row in zip(
            shown["input"], *(shown[n].tolist() for n in numbers), strict=True
        )
    ]
    return InputEffects(words, rows, len(size) - len(largest))
