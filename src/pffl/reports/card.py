"""A model card: Markdown with the YAML header that model hubs read, made from evidence.

What it says is what terminal, page and certificate say, in the same sentences. Names
come from data: whatever would be Markdown, HTML or YAML in them is escaped.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pffl import files
from pffl.errors import ArtefactError
from pffl.evidence import tables
from pffl.evidence.certificate import Certificate, grounds_of
from pffl.evidence.conclude import Conclusions, conclude
from pffl.evidence.noise import between
from pffl.evidence.record import About, Evidence, Missing, Training
from pffl.foreign import Audit
from pffl.models.linear import LeastSquares
from pffl.models.model_file import read_model
from pffl.models.predictor import Predictor
from pffl.reports.inputs import InputsThatMatter
from pffl.runs.directory import CARD, MODEL, read_evidence
from pffl.solution import Solution
from pffl.text import down, few, up, visible

if TYPE_CHECKING:
    from pffl.runs import RunDirectory

FLOOR = 10  # counts below it are withheld
MOST_INPUTS = 40
NOT_STATED = "**not stated**"
ASKED = ("purpose", "owner", "date")  # of `About`: a card without them says so
SPECIAL = re.compile(r"([\\`*_\[\]|~$#])|(?<=www)(\.)|(:)(?=//)|(@)")
#: What would begin a list, or make a heading, at the start of a line.
BLOCK = re.compile(r"^(\s*)([-+](?=[\s-]|$)|=|\d+(?=[.)](?:\s|$)))")
NO_PROMISE = (
    "Bounds and figures are means over the people of a group: nothing is promised to a "
    "single person, nor to people outside the groups.",
    "'Not certified' is not 'exceeded': too few rows certify nothing.",
    "A bound on losses is none on differences in rates between groups; those are in "
    "the tables.",
    "Nothing here says that the use is lawful or wise, or what happens once people or "
    "their circumstances change.",
)


def card(
    subject: Solution | Audit | Evidence | str | os.PathLike[str],
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
    ArtefactError
        The folder holds neither a run nor an audit, or `out` cannot be written.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), seed=0)
    >>> pffl.card(solution, owner="Unit 7").splitlines()[0]
    '---'
    """
    given = About(purpose, owner, date, contact, license)
    predictor = None
    match subject:
        case Solution():
            e, predictor = subject.evidence, subject.predictor
        case Audit():
            e = subject.evidence
        case Evidence():
            e = subject
        case _:
            e = read_evidence(Path(subject))
            predictor = own_model(Path(subject), e)
    stated = replace(e, about=e.about.with_more(given))
    text = markdown(conclude(stated), predictor)
    if out is not None:
        try:
            Path(out).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ArtefactError(f"[cannot-write] {out}: {error.strerror}") from error
    return text


def write_card(place: RunDirectory, c: Conclusions) -> None:
    """Add the card of a run, or of an audit, to its directory."""
    own = own_model(place.directory, c.evidence)
    place.add(CARD, markdown(c, own).encode())


def own_model(directory: Path, e: Evidence) -> Predictor | None:
    """Return the model of a run, where its inputs can be told apart."""
    own = e.trained and e.model.linear and (directory / MODEL).is_file()
    return read_model(directory / MODEL) if own else None


def markdown(c: Conclusions, predictor: Predictor | None = None) -> str:
    """Return the card of what was measured; the same evidence gives the same bytes."""
    e = c.evidence
    certificate = None if e.stopped == "interrupted" else c.certificate
    parts = [
        header(c),
        f"# Model card: {plain(e.data.name)}",
        _about(e),
        "## What can be said",
        _verdicts(c),
        "## Groups and bounds",
        *_groups(c),
        "## Use and limits",
        _limits(e, certificate),
        *_inputs(predictor),
        "## Data",
        *_data(c, predictor),
        "## How it was made",
        _made(e),
        "## How to verify",
        *_verify(e),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


# Text


def plain(text: str) -> str:
    r"""Return text that Markdown shows as it is, in one line.

    >>> print(plain("a|b <i> `c` www.x.y"))
    a\|b &lt;i&gt; \`c\` www\.x.y
    """
    shown = SPECIAL.sub(r"\\\g<0>", escape(visible(text), quote=False))
    return BLOCK.sub(_unlike_a_list, shown)


def _unlike_a_list(found: re.Match[str]) -> str:
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


def _bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


# Header


def header(c: Conclusions) -> str:
    """Return the YAML header, in the form of Hugging Face's model cards."""
    e = c.evidence
    task = "tabular-classification" if e.labels else "tabular-regression"
    tags = ["fairness", "bounded-group-loss", "federated-learning", "tabular"]
    numeric = "mse" if e.model.kind == LeastSquares.name else "loss"
    metric = "accuracy" if e.labels else numeric
    found: dict[str, Any] = {
        "library_name": "pffl",
        **({} if e.about.license is None else {"license": e.about.license}),
        "pipeline_tag": task,
        "tags": tags,
        "datasets": [_identifier(e.data.name)],
        "metrics": [metric],
        "model-index": [
            {
                "name": _identifier(f"{e.data.name}-{e.model.kind}"),
                "results": [
                    {
                        "task": {"type": task},
                        "dataset": {
                            "type": _identifier(e.data.name),
                            "name": e.data.name,
                            "split": split,
                        },
                        "metrics": measured,
                    }
                    for split, measured in _results(c, metric).items()
                ],
            }
        ],
    }
    return "\n".join(["---", *_yaml(found), "---"])


def _results(c: Conclusions, metric: str) -> dict[str, list[dict[str, Any]]]:
    """Return what was measured on each split, as the header lists it."""
    e = c.evidence
    splits = {"train": "train", "test": "test"} if e.trained else {"train": "audited"}
    out: dict[str, list[dict[str, Any]]] = {}
    for split, name in splits.items():
        found = c.train if split == "train" else c.test
        if found is None or not found.rows:
            continue
        value = _mean(e, split) if found.error is None else 1 - found.error
        worst = found.worst_cell_loss
        if worst is None:
            worst = found.worst_group_loss
        measured = [
            (metric, value, "mean loss" if metric == "loss" else metric),
            ("loss", worst, "largest mean loss of a group"),
        ]
        figures = [
            {
                "type": kind,
                "value": round(number, 6),
                "name": f"{words}, {name} rows{_margin(c, split, words)}",
            }
            for kind, number, words in measured
            if number is not None and math.isfinite(number)  # NaN: nobody is there
        ]
        out |= {name: figures} if figures else {}
    return out


def _margin(c: Conclusions, split: str, words: str) -> str:
    """Say between what noise lets a figure of the header be known."""
    e, noise = c.evidence, c.evidence.noise
    if noise is None:
        return ""
    if words == "accuracy":
        found = between(e, noise, split, "wrong") or (0.0, 1.0)
        low, high = 1 - found[1], 1 - found[0]
    elif words == "mean loss":
        low, high = between(e, noise, split, "loss") or (0.0, math.inf)
    else:
        cells = c.losses[split]
        low, high = float(cells.low.max()), float(cells.high.max())
    return f", with noise: between {down(low, digits=3)} and {up(high, digits=3)}"


def _mean(e: Evidence, split: str) -> float:
    """Return the mean loss over rows; the risk may weigh silos alike."""
    sample = e.seen if split == "train" or isinstance(e.heldout, Missing) else e.heldout
    return float(sample.column(e.judged(sample)).sum() / sample.column("weight").sum())


def _identifier(name: str) -> str:
    """Return a name that a hub takes."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.").lower() or "data"


def _yaml(value: Any, indent: str = "") -> list[str]:
    """Return a mapping or a list as lines of YAML, every text in quotes."""
    lines = []
    entries = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, entry in entries:
        lead = f"{key}:" if isinstance(value, Mapping) else "-"
        if not isinstance(entry, Mapping | list):
            lines.append(f"{indent}{lead} {_scalar(entry)}")
        elif lead == "-":
            first, *others = _yaml(entry, indent + "  ")
            lines += [f"{indent}- {first.strip()}", *others]
        else:
            lines += [f"{indent}{lead}", *_yaml(entry, f"{indent}  ")]
    return lines


def _scalar(value: object) -> str:
    # JSON is YAML; what YAML does not take as it is, `visible` has spelt out.
    known = visible(value) if isinstance(value, str) else value
    return json.dumps(known, ensure_ascii=False, allow_nan=False)


# Sections


def _about(e: Evidence) -> str:
    """Say who answers for it, what for and since when; loudly where nobody said."""
    stated = vars(e.about)
    shown = [key for key in stated if key in ASKED or stated[key] is not None]
    lines = ["| | |", "|---|---|"]
    for key in shown:
        text = NOT_STATED if stated[key] is None else plain(stated[key])
        lines.append(f"| {key.capitalize()} | {text} |")
    missing = missing_of(e)
    if missing:
        lines += [
            "",
            f"> Nobody stated the {' and the '.join(missing)} of this model: "
            f"`pffl report DIR --card {_settings(missing)}` does.",
        ]
    return "\n".join(lines)


def missing_of(e: Evidence) -> list[str]:
    """Return what a card asks for, and nobody stated."""
    return [key for key in ASKED if vars(e.about)[key] is None]


def _verdicts(c: Conclusions) -> str:
    return _bullets(
        f"{v.sign} **{v.title}: {plain(v.word)}.** {plain(v.sentence)}"
        for v in tables.verdicts(c)
    )


def _groups(c: Conclusions) -> list[str]:
    """Losses and bounds of cells, then rates of groups, with what they mean."""
    parts = [
        table(tables.table(c, c.cells)),
        f"{plain(tables.meanings(tables.columns(c, c.cells)))}.",
        f"{plain(tables.loss_in_words(c))}.",
        "" if c.binding is None else plain(c.binding),
    ]
    rates = tables.rate_table(c)
    if rates:
        parts += [
            "### How often it is wrong",
            table(rates),
            f"{plain(tables.rates_in_words(c))}.",
        ]
    parts += ["### All rows together", table(tables.measures(c))]
    return [*parts, *(f"{plain(note)}." for note in tables.risk_note(c))]


def _limits(e: Evidence, certificate: Certificate | None) -> str:
    """Say what it is for, what is not promised, and what nobody checked."""
    purpose = e.about.purpose
    lines = [f"Intended use: {NOT_STATED if purpose is None else plain(purpose)}"]
    lines += map(plain, NO_PROMISE)
    if e.data.synthetic:
        lines.append("The rows were generated: no real person is described.")
    if certificate is not None:
        lines += map(plain, _open_grounds(certificate))
    return _bullets(lines)


def _open_grounds(certificate: Certificate) -> list[str]:
    """Return what the statements stand on and nobody has checked."""
    texts = (text for one in certificate.statements for text in grounds_of(one))
    return [t for t in dict.fromkeys(texts) if not t.endswith("(checked)")]


def _inputs(predictor: Predictor | None) -> list[str]:
    """Say which inputs move a linear model most."""
    found = None if predictor is None else InputsThatMatter.of(predictor)
    if found is None:
        return []
    titles = [title for title, _ in found.heads]
    more = f"; {found.others:,} more move it less" if found.others else ""
    return [
        "## Inputs that matter",
        f"{plain(found.words)}{more}. An input that goes along with others shares its "
        "effect with them: this says how the model computes, not what causes what.",
        table([dict(zip(titles, row, strict=True)) for row in found.rows]),
    ]


def _data(c: Conclusions, predictor: Predictor | None) -> list[str]:
    """The data card: names, rows, silos, groups, labels, and what was done to them."""
    e, rows = c.evidence, (c.train, c.test)
    columns = [] if predictor is None else predictor.preparation.columns
    inputs = few([column.name for column in columns], most=MOST_INPUTS)
    facts = {
        "Name": plain(e.data.name),
        **({} if predictor is None else {"Label": plain(predictor.schema.target)}),
        "Values": ", ".join(map(plain, e.labels)) or "a number",
        **({"Inputs": plain(inputs)} if inputs else {}),
        "Training rows" if e.trained else "Rows used": _count(rows[0]),
        **({"Test rows": _count(rows[1])} if e.trained else {}),
        "Silos": f"{e.data.silos:,}",
        "Fingerprint": f"`{e.data.fingerprint or 'the rows were not at hand'}`",
    }
    lines = ["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in facts.items())]
    counts = e.seen.of_atoms("count", len(e.groups)).sum(axis=1)
    groups = [
        {"group": group, "rows": f"{int(n):,}" if n >= FLOOR else f"below {FLOOR}"}
        for group, n in zip(e.groups, counts, strict=True)
    ]
    return ["\n".join(lines), table(groups), _bullets(map(plain, e.data.notes))]


def _count(found: Any) -> str:
    return "none" if found is None else f"{found.rows:,}"


def _made(e: Evidence) -> str:
    """Say how the model came about, as far as that is known."""
    kind = f"Model: {plain(e.model.kind)}, {e.model.parameters:,} parameters"
    weights = "alike" if e.terms.weighting == "silos" else "by rows"
    lines = [kind, f"Silos are weighed {weights} in the risk"]
    if isinstance(e.training, Training):
        run = e.training
        constraint = run.constraint.get("kind", "none")
        lines.append(
            f"Method {plain(str(run.method.get('kind')))}, constraint "
            f"{plain(str(constraint))}, seed {run.seed}, {run.rounds:,} rounds"
        )
    else:
        lines.append(plain(e.training.missing))
    lines += map(plain, e.notes)
    software = ", ".join(f"{name} {number}" for name, number in e.versions.items())
    return _bullets([*lines, plain(f"Software: {software}")])


def _verify(e: Evidence) -> list[str]:
    """Give the commands that compute all of it again, and the hash of the model."""
    commands = ["pffl verify DIR               # every number, from the rows"]
    commands.append(
        "pffl verify DIR --arithmetic  # from evidence.json alone, without rows"
    )
    return [
        "DIR is the folder that this card came with: `certificate.json` states every "
        "claim with its grounds, `evidence.json` holds what was measured.",
        "\n".join(["```sh", *commands, "```"]),
        f"The hash of the model is `{e.model.fingerprint}`.",
    ]


def seal(c: Conclusions) -> str:
    """Return the SHA-256 of certificate.json."""
    return sha256(files.json_text(c.certified()).encode()).hexdigest()


def _settings(names: Iterable[str]) -> str:
    return " ".join(f"--set about.{name}=…" for name in names)
