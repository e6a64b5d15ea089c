"""The page of all claims: what holds, what does not, what could not be shown.

Pure functions from the records of panels (`PanelResult.as_dict`) to Markdown: one page
for each figure, and one of all, claim by claim. Whoever publishes runs these, so no
word on a page was written by hand.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pffl import figures, files
from pffl.errors import ArtefactError
from pffl.study.decisions import decide
from pffl.study.reproduce import FIGURES, FORMAT, VERSION, Figure, PanelResult, load

MEASURES = {
    "worst_cell_loss": "worst cell's loss",
    "worst_silo_loss": "largest silo's loss",
    "dp_gap": "demographic parity gap",
    "eo_gap": "equal opportunity gap",
}
WORDS = ("holds", "does not hold", "no difference shown")
DEPENDS = "depends on the allowance"
COUNTED = (*WORDS, DEPENDS, "not compared")
ROUNDED = 2e-6  # of two figures in a record
RULES = " ".join(
    (
        "How to read it. Differences are taken seed by seed, the named curve",
        "minus the other, on test rows; smaller is better, so negative ones are",
        "in the claim's favour. Each curve's trial is chosen on validation rows,",
        "and every curve has as many trials. In brackets: the 95 % interval of",
        "the mean difference (Student t, widened for seeds that split the same",
        "people anew, Nadeau and Bengio 2003), then that of the permutation test.",
        "*Holds* and *does not hold* are said where p after Holm's correction",
        "over all comparisons of the panel is at most 5 % and the permutation",
        "interval, which needs six seeds, leaves 0 out; otherwise *no difference",
        'shown*, which is not "equal". How much more error a chosen trial may have',
        "than the best is a choice: a word is said only where it is the same at half",
        "that allowance and at half as much more; where it is not, the comparison",
        "*depends on the allowance*, says what each gives, and is counted apart.",
        "*Not compared*: some seed has no trial of one of the two within the",
        "allowance. Pictures: fronts chosen on validation",
        "rows, with 95 % bootstrap bands over seeds; the paper's way is the same",
        "chosen on test rows, which flatters every method and is given no word.",
        "An area is the mean height of a front over the allowances of error at",
        "which every curve has a trial, with a bootstrap interval.",
        "A gap says how far the chosen trials ended, at most, from the optimum of",
        "what their method descends, in units of a loss (divided by β + B where there",
        "are prices; empty where it was not measured); with several local steps a",
        "method ends where silos pull it. Three seeds show only large differences.",
    )
)


def publish(results: Sequence[PanelResult], folder: Path) -> None:
    """Write records and pictures of panels, and all pages anew."""
    for result in results:
        place = files.folder(folder / result.figure.name)
        result.save(place)
        for ending, chart in charts(result.as_dict()).items():
            chart.save(place / f"{result.panel.name}{ending}.svg")
    write_pages(folder)


def charts(panel: Mapping[str, Any]) -> dict[str, figures.Chart]:
    """Pictures by their endings: fronts, the paper's way, paired differences."""
    measure, of = panel["measure"], f"{panel['title']}:"
    test = "chosen on test rows, the paper's way, which flatters"
    lines, words = [], at_allowances(panel)
    for claim in panel["claims"]:
        for one in claim["against"]:
            few = f" ({one['pairs']} of {one['seeds']} seeds)"
            lacking = few if one["pairs"] < one["seeds"] else ""
            less = f" − {claim['margin']:g}" if claim["margin"] else ""
            name = f"{claim['better']} − {one['curve']}{less}{lacking}"
            said = standing(words[comparison(claim, one)], panel["within"])
            shown = said in WORDS[:2]
            lines.append({**one, "method": name, "verdict": said, "shown": shown})
    fronts = figures.fronts
    apart = figures.differences(lines, f"{of} paired differences on test rows")
    return {
        "": fronts(panel["fronts"], y=measure, words=f"{of} chosen on validation rows"),
        "-on-test": fronts(panel["fronts_on_test"], y=measure, words=f"{of} {test}"),
        **({"-differences": apart} if lines else {}),
    }


def write_pages(folder: Path) -> None:
    """Write the pages of all figures whose records lie in a folder, and that of all."""
    found = {figure: records(folder / figure) for figure in FIGURES}
    for figure, panels in found.items():
        text = figure_page(load(figure), panels)
        files.write(files.folder(folder / figure) / "README.md", text.encode())
    files.write(folder / "README.md", overview(found).encode())


def records(folder: Path) -> list[dict[str, Any]]:
    """Read the records of panels in a folder."""
    out = []
    for path in sorted(folder.glob("*.json")):
        try:
            record = json.loads(files.read(path))
        except ValueError as error:
            raise ArtefactError(
                f"[bad-record-file] '{path}' is no record of a panel: {error}"
            ) from error
        if isinstance(record, dict) and record.get("format") == FORMAT:
            if record.get("version") != VERSION:
                raise ArtefactError(
                    f"[other-format] '{path}' is of another version: run it again"
                )
            check(record)
            out.append(record)
    return out


def check(record: Mapping[str, Any]) -> None:
    """Refuse a record whose figures do not follow from its points: all that is wrong.

    Numbers of trials are equal, or their reasons are told, and the means are those of
    the trials that validation rows choose.
    """
    problems, points = [], record["points"]
    curves = list(dict.fromkeys(point["curve"] for point in points))
    counts = Counter(point["curve"] for point in points)
    told = " ".join(record["terms"])
    most = max(counts.values())
    problems += [
        f"'{curve}' had {n} trials, and others {most}"
        for curve, n in counts.items()
        if n < most and f"{curve} has {n}, because" not in told
    ]
    within, seeds = float(record["within"]), sorted(points[0].get("validation", {}))
    for curve in curves:
        values = [_chosen(points, curve, seed, within) for seed in seeds]
        known = [value for value in values if not math.isnan(value)]
        mean = next(m for m in record["means"] if m["curve"] == curve)
        stated = mean[record["measure"]]
        follows = sum(known) / len(known) if known else None
        if follows is not None and (stated is None or abs(follows - stated) > 1e-3):
            problems.append(
                f"the mean of '{curve}' is given as {number(stated)}, and the trials "
                f"that validation rows choose have {follows:.4f}"
            )
    if problems:
        listed = "\n  ".join(problems)
        raise ArtefactError(
            f"[unfair-study] panel '{record['name']}' is not fair:\n  {listed}"
        )


# Other allowances


def words_within(panel: Mapping[str, Any], within: float) -> dict[str, str]:
    """The word of every comparison, had trials been chosen within another allowance.

    From the points of a record, by the rules of `experiment` and `decisions`.
    """
    points, rows = panel["points"], panel["rows"]
    values = {
        curve: [_chosen(points, curve, seed, within) for seed in points[0]["test"]]
        for curve in dict.fromkeys(point["curve"] for point in points)
    }
    differences = {}
    for claim in panel["claims"]:
        for one in claim["against"]:
            pairs = zip(values[claim["better"]], values[one["curve"]], strict=True)
            apart = [a - b - claim["margin"] for a, b in pairs]
            differences[comparison(claim, one)] = apart
    shared = panel.get("overlap", rows["test"] / rows["train"])
    found = decide(differences, overlap=shared)
    return {
        name: one.word if one.pairs == one.seeds else "not compared"
        for name, one in found.items()
    }


def _chosen(
    points: Sequence[Mapping[str, Any]], curve: str, seed: str, within: float
) -> float:
    """Measure on test rows of a curve's trial on a seed; NaN where it has none."""
    known = [p for p in points if None not in p["validation"][seed]]
    limit = min(p["validation"][seed][0] for p in known) + within + ROUNDED
    inside = [
        (p["validation"][seed][1], p["test"][seed][1])
        for p in known
        if p["curve"] == curve and p["validation"][seed][0] <= limit
    ]
    value = min(inside, key=lambda pair: float(pair[0]), default=(None, None))[1]
    return float("nan") if value is None else float(value)


def comparison(claim: Mapping[str, Any], one: Mapping[str, Any]) -> str:
    """Name a comparison of a claim."""
    margin = claim["margin"]
    more = f" (up to {margin:g} more)" if margin else ""
    return f"{claim['better']} against {one['curve']}{more}"


def at_allowances(panel: Mapping[str, Any]) -> dict[str, dict[float, str]]:
    """The words of every comparison at half the allowance, at it, and at half more.

    The allowance is a choice; a word that hangs on it should be known to.
    """
    within = float(panel["within"])
    found = {a: words_within(panel, a) for a in (within / 2, within, within * 1.5)}
    return {
        name: {a: words[name] for a, words in found.items()} for name in found[within]
    }


def standing(words: Mapping[float, str], within: float) -> str:
    """One of `COUNTED`: the word at the panel's allowance, if it stands elsewhere too.

    Where some allowance says that a claim holds or does not, all must.
    """
    said = set(words.values())
    return DEPENDS if said & set(WORDS[:2]) and len(said) > 1 else words[within]


def elsewhere(panel: Mapping[str, Any]) -> str:
    """Say which words change at half the allowance and at half as much more."""
    within, found = float(panel["within"]), at_allowances(panel)
    here, told = {name: words[within] for name, words in found.items()}, list[str]()
    for other in (within / 2, within * 1.5):
        words = {name: words[other] for name, words in found.items()}
        changed = [name for name, word in words.items() if word != here[name]]
        parts = [
            f"{name}: {words[name]} (here: {here[name]})"
            for name in changed
            if words[name] in WORDS
        ]
        lost = [name for name, word in words.items() if word not in WORDS]
        if set(lost) & set(changed):
            held = [f"{n} (here: {here[n]})" for n in lost if here[n] in WORDS[:2]]
            among = f", among them {', '.join(held)}" if held else ""
            parts.append(f"{len(lost)} of {len(words)} not compared{among}")
        told.append(f"Within {other:g}, {'; '.join(parts) or 'the same words'}.")
    start = f"The same with other allowances of error than {within:g}."
    return " ".join([start, *told])


# Markdown


def figure_page(figure: Figure, panels: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of one figure."""
    lines = [f"# {figure.title}", "", f"**The paper.** {figure.paper}", ""]
    lines += [f"**Grids.** {figure.fixed} All that is tried stands in `spec.toml`.", ""]
    names = sorted({str(panel.data["name"]) for panel in figure.panels})
    for name in names:
        source = {"acs": " --source FILE", "celeba": " --source DIR"}.get(name, "")
        command = (
            f"python -m reproduction reproduce {figure.name} --data {name}{source}"
        )
        lines += [f"**Command.** `{command} --publish reproduction`", ""]
    lines += [RULES, ""]
    for panel in panels:
        lines += panel_part(panel)
    ran = {panel["name"] for panel in panels}
    lacking = [panel.name for panel in figure.panels if panel.name not in ran]
    if lacking:
        lines += [f"Not run here: {', '.join(lacking)}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def panel_part(panel: Mapping[str, Any]) -> list[str]:
    """Return the part of a page that one panel has."""
    name, measure = panel["name"], panel["measure"]
    title = MEASURES.get(measure, measure)
    rows = ", ".join(f"{n:,} {split}" for split, n in panel["rows"].items())
    lines = [f"## {panel['title']}", ""]
    lines += [f"![fronts]({name}.svg)", ""]
    lines += [
        f"{panel['silos']} silos; rows: {rows}. At most {panel['budget']:,} gradients "
        f"a trial. {' '.join(panel['terms'])}{_hours(panel)}",
        "",
    ]
    lines += [f"Cut: {panel['cut']}", ""] if panel["cut"] else []
    lines += [
        f"| curve | {title} | error | area under the front | gap at most | passes | "
        "MB |",
        "|---|---|---|---|---|---|---|",
    ]
    areas = {line["curve"]: line for line in panel["areas"]}
    for mean in panel["means"]:
        area = areas[mean["curve"]]
        gap = "" if mean["largest_gap"] is None else f"{mean['largest_gap']:.0e}"
        size = "" if mean["bytes"] is None else f"{mean['bytes'] / 1e6:.2f}"
        spent = "" if mean["passes"] is None else f"{mean['passes']:,.0f}"
        some = f" (on {mean['seeds']} of {panel['seeds']} seeds)"
        seeds = "" if mean["seeds"] == panel["seeds"] else some
        lines.append(
            f"| {mean['curve']}{seeds} | {number(mean[measure])} | "
            f"{number(mean['error'])} | {number(area['area'])} "
            f"({number(area['low'])} to {number(area['high'])}) | {gap} | {spent} | "
            f"{size} |"
        )
    lines.append("")
    if panel["claims"]:
        lines += [*claims_part(panel), elsewhere(panel), ""]
        lines += [f"![differences]({name}-differences.svg)", ""]
    lines += ["The paper's way (chosen on test rows):", ""]
    return [*lines, f"![fronts on test]({name}-on-test.svg)", ""]


def _hours(panel: Mapping[str, Any]) -> str:
    """How long all trials trained, where the record says it."""
    seconds = panel.get("seconds")
    if seconds is None:
        return ""
    return f" Training them took {seconds / 60:,.0f} minutes by the clock, added up."


def claims_part(panel: Mapping[str, Any]) -> list[str]:
    """Return the claims of a panel as a table each."""
    lines, words = [], at_allowances(panel)
    for claim in panel["claims"]:
        allowed = claim["margin"]
        more = f" Up to {allowed:g} more counts as comparable." if allowed else ""
        lines += [
            f"**{claim['text']}**{more}",
            "",
            f"| {claim['better']} against | difference | t | permutation | p (Holm) | "
            "error, difference | |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {one['curve']} | "
            f"{number(shifted(one['mean'], allowed), signed=True)} | "
            f"{interval(one, '', allowed)} | {interval(one, 'permuted_', allowed)} | "
            f"{small(one['adjusted'])} | {number(one['error']['mean'], signed=True)} "
            f"{interval(one['error'], '')} | "
            f"{verdict(one, words[comparison(claim, one)], panel['within'])} |"
            for one in claim["against"]
        ]
        lines.append("")
    return lines


def verdict(one: Mapping[str, Any], words: Mapping[float, str], within: float) -> str:
    """The word, and where it says less than it seems."""
    said = standing(words, within)
    if said == DEPENDS:
        return f"{said}: {', '.join(f'{w} within {a:g}' for a, w in words.items())}"
    if one["pairs"] < one["seeds"]:
        lacking = one["seeds"] - one["pairs"]
        several = "seed" if lacking == 1 else "seeds"
        return f"not compared: no trial within the error allowed on {lacking} {several}"
    return f"**{said}**" if said != WORDS[2] else said


def tally(panels: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """How many comparisons of some panels came to each of `COUNTED`."""
    return Counter(
        standing(words, panel["within"])
        for panel in panels
        for words in at_allowances(panel).values()
    )


def overview(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the page of all figures, claim by claim."""
    lines = [
        "# The paper, claim by claim",
        "",
        "*Fair Federated Learning via Bounded Group Loss* (Hu, Wu, Smith), run again. "
        "This page and those of the figures are written by `python -m reproduction "
        "reproduce … --publish reproduction`, the command that checks the claims.",
        "",
        RULES,
        "",
        "## All comparisons",
        "",
        "| panel | seeds | " + " | ".join(COUNTED) + " |",
        "|---" * (len(COUNTED) + 2) + "|",
    ]
    body: list[str] = []
    for name, panels in found.items():
        figure = load(name)
        body += [f"## [{figure.title}]({name}/README.md)", "", figure.paper, ""]
        body += [f"Grids: {figure.fixed}", ""]
        for panel in panels:
            counts = tally([panel])
            where = (
                f"[{figure.title.split(':')[0]}: {panel['title']}]({name}/README.md)"
            )
            cells = " | ".join(str(counts[word] or "") for word in COUNTED)
            lines.append(f"| {where} | {panel['seeds']} | {cells} |")
            body += _overview_part(name, panel)
        lacking = [
            panel.name
            for panel in figure.panels
            if panel.name not in {one["name"] for one in panels}
        ]
        if lacking:
            body += [f"Could not be shown: {', '.join(lacking)} (not run here).", ""]
    counts = tally([panel for panels in found.values() for panel in panels])
    cells = " | ".join(f"**{counts[word]}**" for word in COUNTED)
    lines += [f"| **all** | | {cells} |", "", *_said(found)]
    lines += [
        "Figure 1 and the BGL panels of Figure 2 on the same rows share trials.",
        "",
    ]
    return "\n".join([*lines, *body]).rstrip() + "\n"


def _said(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Every comparison of which more is said than that no difference is shown."""
    out: dict[str, list[str]] = {word: [] for word in (*WORDS[:2], DEPENDS)}
    for panel in (panel for panels in found.values() for panel in panels):
        words = at_allowances(panel)
        for claim in panel["claims"]:
            for one in claim["against"]:
                name = comparison(claim, one)
                word = standing(words[name], panel["within"])
                if word in out:
                    mean = number(shifted(one["mean"], claim["margin"]), signed=True)
                    ends = interval(one, "", claim["margin"])
                    out[word].append(f"{panel['title']}: {name}, {mean} {ends}")
    lines = []
    for word, told in out.items():
        lines += [f"*{word[0].upper()}{word[1:]}*: {'; '.join(told) or 'nothing'}.", ""]
    return lines


def _overview_part(figure: str, panel: Mapping[str, Any]) -> list[str]:
    """What the page of all figures has of a panel."""
    lines = [f"### {panel['title']}", "", _picture(figure, panel), ""]
    lines += [f"{panel['terms'][0]} {panel['cut']}".strip(), ""]
    words = at_allowances(panel)
    if panel["claims"]:
        lines += [
            "| claim | against | difference (95 % interval) | |",
            "|---|---|---|---|",
        ]
    for claim in panel["claims"]:
        allowed = claim["margin"]
        more = f" (up to {allowed:g} more)" if allowed else ""
        for one in claim["against"]:
            shown = number(shifted(one["mean"], allowed), signed=True)
            said = verdict(one, words[comparison(claim, one)], panel["within"])
            lines.append(
                f"| {claim['text']}{more} | {one['curve']} | {shown} "
                f"{interval(one, '', allowed)} | {said} |"
            )
    return [*lines, ""]


def _picture(figure: str, panel: Mapping[str, Any]) -> str:
    return f"![{panel['title']}]({figure}/{panel['name']}.svg)"


def number(value: float | None, *, signed: bool = False) -> str:
    """Write a measure; nothing where it is undefined."""
    if value is None:
        return "–"
    return f"{value:+.4f}" if signed else f"{value:.4f}"


def small(p: float | None) -> str:
    """Write a p-value."""
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def interval(one: Mapping[str, Any], kind: str, margin: float = 0.0) -> str:
    """Write both ends of an interval."""
    low, high = (shifted(one[f"{kind}{end}"], margin) for end in ("low", "high"))
    if low is None or high is None:
        return "(–)"
    return f"({number(low, signed=True)} to {number(high, signed=True)})"


def shifted(value: float | None, margin: float) -> float | None:
    """A difference itself, of one from which the margin was taken."""
    return None if value is None else value + margin
