"""A benchmark over data sets whose silos or groups are natural, and over settings.

Every method is compared on every data set by `compare`, with as many trials each; the
methods are then ranked on each data set and told apart by Nemenyi's critical difference
over all. On COMPAS, whose silos are drawn, the cut, the number of silos, participation
and local steps are varied one at a time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy import stats

from pffl import figures, files
from pffl.data.federation import Federation
from pffl.errors import ArtefactError, DataError, UsageError
from pffl.figures.chart import Axis, Mark, Row, Rows, Series
from pffl.figures.tables import Table, rows_of, used
from pffl.models.linear import default_model
from pffl.preparation import Options
from pffl.progress import counted
from pffl.records import Record
from pffl.spec import parse
from pffl.study import experiment
from pffl.study.compare import Comparison, compare, overlap, space
from pffl.study.decisions import LEVEL
from pffl.study.experiment import Report, Study
from pffl.study.published import interval, number, small
from pffl.study.sweep import notion_of, quiet, smallest_bound
from pffl.study.trial import Footing, Trial
from reproduction import extend

FORMAT = "pffl.benchmark"
TERMS = ("suite", "methods", "seeds", "trials", "budget", "within")
VALIDATION = 0.2
MEASURE = "worst_cell_loss"
WITHIN = 0.02
TRIALS = 8
BUDGET = 300
METHODS_RANKED = (
    "fedavg",
    "group-weighted",
    "pffl",
    "exact",
    "local-bgl",
    "fedminmax",
    "afl",
    "qffl",
    "fedfb",
    "fairgrad",
    "fairfed",
)
#: Data sets: section of a run file; silos or groups that nobody drew.
NATURAL: dict[str, dict[str, Any]] = {
    "acs": {"name": "acs", "year": 2024, "people": 400, "group": ["sex", "race"]},
    "adult": {"name": "adult", "partition": "education", "group": ["sex", "race"]},
    "compas": {"name": "compas", "group": ["sex", "race"]},
    "mortgages": {"name": "natural", "table": "mortgages", "people": 20000},
    "happiness": {"name": "natural", "table": "happiness"},
    "colleges": {"name": "natural", "table": "colleges"},
    "alcohol": {"name": "natural", "table": "alcohol"},
}
SUITES = {"natural": NATURAL}
#: What is varied on COMPAS by sex: of the data, or of methods with local training.
VARIED: dict[str, tuple[str, tuple[float, ...]]] = {
    "alpha": ("data", (0.1, 1.0, 100.0)),
    "silos": ("data", (3, 10, 30)),
    "participation": ("method", (0.2, 0.5, 1.0)),
    "local_steps": ("method", (1, 5, 20)),
}
VARIED_METHODS = ("fedavg", "group-weighted", "pffl", "local-bgl")

Open: TypeAlias = Callable[[Mapping[str, Any], int], Federation]


@dataclass(frozen=True)
class Benchmark:
    """What a suite came to: a record of plain values."""

    record: Mapping[str, Any]

    @property
    def ranks(self) -> Ranks:
        """Mean ranks over the data sets."""
        found = self.record["ranks"]
        lists = {k: tuple(found[k]) for k in ("methods", "ranks")}
        return Ranks(**{**found, **lists})

    def charts(self) -> dict[str, figures.Chart]:
        """Pictures by name: ranks, differences on each data set, what was varied."""
        ranks = self.ranks
        lines = [
            {"method": m, "rank": r}
            for m, r in zip(ranks.methods, ranks.ranks, strict=True)
        ]
        words = f"Mean rank by the worst group's loss on {ranks.data_sets} data sets"
        out: dict[str, figures.Chart] = {
            "ranks": ranks_chart(lines, critical=ranks.critical, words=words)
        }
        for name, one in self.record["data_sets"].items():
            out[f"{name}-differences"] = figures.differences(
                one["differences"], f"{name}: worst group's loss, difference to fedavg"
            )
        for name, points in self.record["varied"].items():
            across = f"{name} (power of ten)" if name == "alpha" else name
            placed = [
                {**p, across: np.log10(p[name]) if name == "alpha" else p[name]}
                for p in points
            ]
            out[f"varied-{name}"] = figures.fronts(
                placed, x=across, y=MEASURE, words=f"COMPAS by sex: {name} varied"
            )
        return out

    @classmethod
    def load(cls, folder: Path) -> Benchmark:
        """Read the record that `save` wrote."""
        place = folder / "benchmark.json"
        try:
            record = json.loads(files.read(place))
        except ValueError as error:
            raise ArtefactError(f"'{place}' is no benchmark: {error}") from error
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise ArtefactError(f"'{place}' is no benchmark")
        return cls(record)

    def beside(self, other: Benchmark) -> Benchmark:
        """Return this one with the data sets of another that it has not; ranks anew.

        They must have been run under the same terms.
        """
        mine, theirs = self.record, other.record
        for key in TERMS:
            if mine[key] != theirs[key]:
                raise UsageError(
                    f"two benchmarks with {key} {theirs[key]!r} and {mine[key]!r} have "
                    "no ranks together: run all data sets under the same terms"
                )
        found = {**theirs["data_sets"], **mine["data_sets"]}
        order = [name for name in SUITES[mine["suite"]] if name in found]
        whole = {name: found[name] for name in order}
        absent = {**theirs["absent"], **mine["absent"]}
        record = {
            **mine,
            "data_sets": whole,
            "absent": {k: v for k, v in absent.items() if k not in whole},
            "ranks": asdict(_ranks(whole, mine["methods"])),
            "varied": {**theirs["varied"], **mine["varied"]},
        }
        return Benchmark(files.plain(record))

    def save(self, folder: Path) -> None:
        """Write the record, the pictures and the page."""
        text = json.dumps(files.plain(self.record), indent=1, ensure_ascii=False)
        files.write(files.folder(folder) / "benchmark.json", f"{text}\n".encode())
        for name, chart in self.charts().items():
            chart.save(folder / f"{name}.svg")
        files.write(folder / "README.md", page(self.record).encode())


def run_suite(
    name: str,
    open_data: Open,
    *,
    methods: Sequence[str] = METHODS_RANKED,
    data_sets: Sequence[str] | None = None,
    seeds: int = 5,
    trials: int = TRIALS,
    budget: int = BUDGET,
    out: Path | None = None,
    report: Report = quiet,
) -> Benchmark:
    """Compare methods on all data sets of a suite, rank them, and vary settings.

    Parameters
    ----------
    open_data
        Opens a [data] section with a seed.
    data_sets
        Some of the suite's alone.
    out
        A folder: finished rows are kept there and not run again.
    """
    if name not in SUITES:
        raise UsageError(f"no suite '{name}': there are {', '.join(SUITES)}")
    sections = SUITES[name]
    wanted = list(sections) if data_sets is None else list(data_sets)
    unknown = sorted(set(wanted) - set(sections))
    if unknown:
        raise UsageError(f"suite '{name}' has no {unknown}: it has {list(sections)}")
    found, absent = {}, {}
    for one in wanted:
        opened = partial(open_data, sections[one])

        def told(what: str, done: int, total: int, name: str = one) -> None:
            report(f"{name}: {what}", done, total)

        try:
            compared = compare(
                opened,
                "bgl",
                methods=methods,
                options=Options(empty_cells="remove"),
                seeds=seeds,
                trials=trials,
                budget=budget,
                measure=MEASURE,
                within=WITHIN,
                out=None if out is None else out / one,
                report=told,
            )
        except DataError as error:
            absent[one] = str(error).splitlines()[0]
            continue
        found[one] = _record(compared, opened(0))
    if not found:
        raise DataError(f"no data set of '{name}' could be opened: {absent}")
    varied = {
        key: vary(key, open_data, seeds=seeds, trials=trials, budget=budget, out=out)
        for key in VARIED
        if "compas" in found
    }
    record = {
        "format": FORMAT,
        "suite": name,
        "methods": list(methods),
        "seeds": seeds,
        "trials": trials,
        "budget": budget,
        "within": WITHIN,
        "data_sets": found,
        "absent": absent,
        "ranks": asdict(_ranks(found, methods)),
        "varied": varied,
    }
    return Benchmark(files.plain(record))


def _ranks(found: Mapping[str, Mapping[str, Any]], methods: Sequence[str]) -> Ranks:
    """Rank methods over data sets; one without a value on all seeds comes last."""
    values = {
        method: [one["values"].get(method) for one in found.values()]
        for method in methods
    }
    return ranked(
        {
            method: [np.inf if v is None else v for v in own]
            for method, own in values.items()
        }
    )


def _record(compared: Comparison, federation: Federation) -> dict[str, Any]:
    """What is kept of a comparison: values, differences, who was left out."""
    study = compared.study
    means = {}
    for method, by_seed in study.reported(MEASURE).items():
        known = [value for value in by_seed.values() if value is not None]
        whole = len(known) == len(study.seeds)
        means[method] = float(np.mean(known)) if whole else None
    errors = {}
    for method, by_seed in study.reported("error").items():
        known = [value for value in by_seed.values() if value is not None]
        errors[method] = float(np.mean(known)) if known else None
    return {
        "about": federation.name,
        "rows": {split: federation.rows(split) for split in federation.splits},
        "silos": len(federation.silos),
        "groups": list(federation.schema.groups),
        "terms": study.terms,
        "values": means,
        "errors": errors,
        "differences": compared.differences(MEASURE).to_dict("records"),
        "passes": compared.table["passes"].to_dict(),
        "seconds": compared.table["seconds"].to_dict(),
    }


def vary(
    key: str,
    open_data: Open,
    *,
    seeds: int,
    trials: int,
    budget: int,
    out: Path | None,
) -> list[dict[str, Any]]:
    """Vary one setting on COMPAS by sex: each method's worst loss, with its band."""
    kind, values = VARIED[key]
    lines = []
    for value in values:
        study = _varied(
            {"name": "compas"} | ({key: value} if kind == "data" else {}),
            {} if kind == "data" else {key: value},
            open_data,
            seeds=seeds,
            trials=trials,
            budget=budget,
            journal=files.Journal(None if out is None else out / "varied.jsonl"),
        )
        lines += [
            {
                "curve": method,
                key: value,
                "error": point["error"],
                MEASURE: point["value"],
                f"{MEASURE}_low": point["low"],
                f"{MEASURE}_high": point["high"],
            }
            for method, points in study.front(MEASURE, [WITHIN]).items()
            for point in points
        ]
    places = {name: i for i, name in enumerate(VARIED_METHODS)}
    return sorted(lines, key=lambda line: (places[line["curve"]], line[key]))


def _varied(
    section: Mapping[str, Any],
    fixed: Mapping[str, Any],
    open_data: Open,
    *,
    seeds: int,
    trials: int,
    budget: int,
    journal: files.Journal,
) -> Study:
    """Compare the methods with local training, some of their parameters fixed."""
    first = open_data(section, 0)
    model = default_model(first.schema)
    constraint = notion_of("bgl")(smallest_bound(first, notion_of("bgl")(0.0)))
    plans = {}
    for name in VARIED_METHODS:
        grid = {k: v for k, v in space(name, model).items() if k not in fixed}
        points = experiment.drawn(experiment.combinations({**grid, **fixed}), trials)
        plans[name] = [Trial(name, name, point, constraint) for point in points]

    def at(seed: int) -> Footing:
        federation = first if seed == 0 else open_data(section, seed)
        return Footing(federation, model, budget, seed, seed, Options(), journal)

    return experiment.run(
        plans,
        range(seeds),
        at,
        measure=MEASURE,
        within=WITHIN,
        overlap=overlap(first),
        all_on_test=True,
    )


# Ranks


@dataclass(frozen=True)
class Ranks(Record):
    """Methods ranked on each data set, 1 for the smallest value (Demšar 2006).

    Attributes
    ----------
    methods, ranks
        Names, and mean ranks; of equal values each has the mean of their places.
    data_sets
        How many.
    p
        Of Friedman's test that all methods are alike; None for fewer than two data
        sets or three methods.
    critical
        Nemenyi's critical difference: two mean ranks further apart differ at 5 %.
    """

    methods: tuple[str, ...]
    ranks: tuple[float, ...]
    data_sets: int
    p: float | None
    critical: float | None


def ranked(values: Mapping[str, Sequence[float]], *, level: float = LEVEL) -> Ranks:
    """Rank methods by their values on data sets, one each; smaller is better."""
    names = tuple(values)
    table = np.array([values[name] for name in names], dtype=float).T
    n, k = table.shape
    ranks = stats.rankdata(table, axis=1)
    p = critical = None
    if n >= 2 and k >= 3 and np.ptp(ranks) > 0:
        p = float(stats.friedmanchisquare(*table.T).pvalue)
        q = float(stats.studentized_range.ppf(1 - level, k, np.inf)) / np.sqrt(2)
        critical = float(q * np.sqrt(k * (k + 1) / (6 * n)))
    return Ranks(names, tuple(map(float, ranks.mean(axis=0))), n, p, critical)


def ranks_chart(
    table: Table,
    *,
    critical: float | None = None,
    words: str = "Mean rank of each method, the best first",
) -> Rows:
    """A critical-difference plot: mean ranks, and who is not told apart.

    After Demšar (2006), with names in rows so that long ones have room.

    Parameters
    ----------
    table
        `method` and `rank`: its mean over data sets, 1 is best.
    critical
        By how much two mean ranks must differ to be told apart; drawn as a length.
    """
    found = sorted(
        ((str(row["method"]), float(row["rank"])) for row in rows_of(table)),
        key=lambda pair: pair[1],
    )
    rows = [
        Row(name, (Mark("rank", rank, words=f"{name}: {rank:.2f}"),), f"{rank:.2f}")
        for name, rank in found
    ]
    if critical is not None:
        scale = Mark("critical", 1.0, 1.0 + critical, f"{critical:.2f}")
        rows.insert(0, Row("critical difference", (scale,), f"{critical:.2f}"))
    place = dict(found)
    near = [] if critical is None else _near(found, critical)
    groups = [group for group in near if len(group) > 1]
    rows += [Row("No difference shown between")] if groups else []
    for group in groups:
        low, high = place[group[0]], place[group[-1]]
        text = f"{', '.join(group)}: {low:.2f} to {high:.2f}"
        rows.append(Row(", ".join(group), (Mark("alike", low, high, text),)))
    series = {
        "rank": Series("mean rank", "dot", "after"),
        "alike": Series("no difference shown", "range", "before"),
        "critical": Series("", "range", "bound"),
    }
    most = max([len(found), *place.values(), 2.0, 1.0 + (critical or 0.0)])
    axis = Axis("mean rank, 1 is best", 1.0, float(most), whole=True)
    return Rows(words, axis, rows, used(series, rows))


def _near(found: Sequence[tuple[str, float]], critical: float) -> list[list[str]]:
    """Groups of neighbours no further apart than `critical`, none inside another."""
    out: list[list[str]] = []
    for i, (_, first) in enumerate(found):
        group = [name for name, rank in found[i:] if rank - first <= critical]
        if not out or group[-1] not in out[-1]:
            out.append(group)
    return out


# The page


def page(record: Mapping[str, Any]) -> str:
    """Return the page of a benchmark; written by the command that ran it."""
    ranks = record["ranks"]
    order = sorted(
        zip(ranks["methods"], ranks["ranks"], strict=True), key=lambda pair: pair[1]
    )
    critical, best = ranks["critical"], order[0]
    apart = [m for m, r in order if critical is not None and r - best[1] > critical]
    lines = [
        "# A benchmark on natural silos and groups",
        "",
        f"{len(record['data_sets'])} of the suite's data sets, {len(order)} methods, "
        f"{record['trials']} trials each, {record['seeds']} seeds, at most "
        f"{record['budget']:,} gradients per silo and trial. Logistic regression; "
        "groups are intersectional where the data have two attributes; the bound of "
        "methods that take one is a little above the smallest that training rows of "
        "the first seed can meet. Trials are chosen on validation rows: the smallest "
        f"worst-group loss within {record['within']:g} of the smallest error of any "
        "trial. Written by `python -m reproduction.suite --publish "
        "reproduction/benchmark` (`--source FILE` for ACS, `--only LIST` for some); "
        "rules: "
        "[docs/methods.md, 14](../../docs/methods.md#14-how-methods-are-compared).",
        "",
        "## Ranks",
        "",
        "![mean ranks](ranks.svg)",
        "",
        "By the mean over seeds of the worst group's loss on test rows; a method that "
        "has no trial within the allowance on some seed is ranked last on that data "
        "set. "
        + (
            "Friedman's test needs two data sets and three methods."
            if ranks["p"] is None
            else f"Friedman's test: p = {small(ranks['p'])}. Critical difference "
            f"(Nemenyi, 5 %): {critical:.2f}."
        ),
        "",
        "| method | mean rank | ranked last for want of a trial |",
        "|---|---|---|",
        *(
            f"| {method} | {rank:.2f} | {', '.join(_without(record, method))} |"
            for method, rank in order
        ),
        "",
        *_hardly(record),
        f"Told apart from the best ({best[0]}): {', '.join(apart) or 'none'}. With "
        f"{ranks['data_sets']} data sets only large differences of ranks can be shown.",
        "",
        "## Data sets",
        "",
    ]
    for name, one in record["data_sets"].items():
        lines += _data_part(name, one)
    lacking = [
        one
        for one in SUITES[record["suite"]]
        if one not in record["data_sets"] and one not in record["absent"]
    ]
    if lacking:
        lines += [f"Not run: {', '.join(lacking)}.", ""]
    if record["absent"]:
        lines += ["Left out, because they could not be opened:", ""]
        lines += [f"- {name}: {why}" for name, why in record["absent"].items()]
        lines.append("")
    lines += [
        "## What was varied (COMPAS by sex)",
        "",
        "Nothing is decided here: means with 95 % bootstrap bands over seeds. A method "
        "that is not in a row had no trial within the allowance on some seed.",
        "",
    ]
    for name, points in record["varied"].items():
        lines += [f"![{name}](varied-{name}.svg)", "", *_varied_part(name, points)]
    return "\n".join(lines).rstrip() + "\n"


def _without(record: Mapping[str, Any], method: str) -> list[str]:
    """Data sets on which a method has no value."""
    found = record["data_sets"].items()
    return [name for name, one in found if one["values"].get(method) is None]


def _hardly(record: Mapping[str, Any]) -> list[str]:
    """Say on which data sets most methods have no value: ranks there say little."""
    out, methods = [], record["methods"]
    for name, one in record["data_sets"].items():
        valued = [m for m in methods if one["values"].get(m) is not None]
        if 2 * len(valued) < len(methods):
            who = f"only {', '.join(valued)}" if valued else "no method"
            out += [
                f"On {name} {who} had a trial within the allowance on every seed, so "
                "ranks there say little of what methods aim at: those that train "
                f"locally had {record['budget']:,} gradients, and others as many "
                "Hessians as they take.",
                "",
            ]
    return out


def _data_part(name: str, one: Mapping[str, Any]) -> list[str]:
    rows = ", ".join(f"{n:,} {split}" for split, n in one["rows"].items())
    lines = [
        f"### {name}",
        "",
        f"{one['about']}: {one['silos']} silos, {len(one['groups'])} groups; rows: "
        f"{rows}. " + " ".join(one["terms"]),
        "",
        f"![differences]({name}-differences.svg)",
        "",
        "| method | worst group's loss | error | difference to fedavg (95 %) | "
        "p (Holm) | shown | passes |",
        "|---|---|---|---|---|---|---|",
    ]
    apart = {line["method"]: line for line in one["differences"]}
    for method, value in one["values"].items():
        line = apart.get(method)
        told = "| | |"
        if line is not None:
            told = (
                f"{number(line['mean'], signed=True)} {interval(line, '')} | "
                f"{small(line['p'])} | {line['verdict']} |"
            )
        spent = one["passes"].get(method)
        passes = "" if spent is None or np.isnan(spent) else f"{spent:,.0f}"
        lines.append(
            f"| {method} | {number(value)} | {number(one['errors'][method])} | {told} "
            f"{passes} |"
        )
    return [*lines, ""]


def _varied_part(name: str, points: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        f"| method | {name} | worst loss (95 % band) | error |",
        "|---|---|---|---|",
    ]
    for p in points:
        band = {"low": p[f"{MEASURE}_low"], "high": p[f"{MEASURE}_high"]}
        ends = f"({number(band['low'])} to {number(band['high'])})"
        lines.append(
            f"| {p['curve']} | {p[name]:g} | {number(p[MEASURE])} {ends} | "
            f"{number(p['error'])} |"
        )
    return [*lines, ""]


# The command


def main() -> None:
    """Run the suite, write page and pictures, and say who ranks where."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", default=",".join(METHODS_RANKED))
    parser.add_argument("--only", default=",".join(NATURAL), help="some data sets")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=BUDGET, help="gradients per silo")
    parser.add_argument("--source", help="file or folder of ACS")
    parser.add_argument("--out", type=Path, default=Path("runs/suite-natural"))
    parser.add_argument("--publish", type=Path, help="folder of page and pictures")
    given = parser.parse_args()
    extend()

    def opened(section: Mapping[str, Any], seed: int) -> Federation:
        extra: dict[str, Any] = {"seed": seed, "validation_fraction": VALIDATION}
        if section["name"] == "acs" and given.source is not None:
            extra["source"] = given.source
        return parse({"data": {**section, **extra}}, source="suite").data.open()

    with counted("run") as report:
        found = run_suite(
            "natural",
            opened,
            methods=given.methods.split(","),
            data_sets=given.only.split(","),
            seeds=given.seeds,
            budget=given.budget,
            out=given.out,
            report=report,
        )
    found.save(given.out)
    if given.publish is not None:
        if (given.publish / "benchmark.json").exists():
            found = found.beside(Benchmark.load(given.publish))
        found.save(given.publish)
    ranks = found.ranks
    for rank, name in sorted(zip(ranks.ranks, ranks.methods, strict=True)):
        print(f"{rank:5.2f}  {name}")
    print(
        f"Critical difference: {ranks.critical}. Saved in {given.publish or given.out}"
    )


if __name__ == "__main__":
    main()
