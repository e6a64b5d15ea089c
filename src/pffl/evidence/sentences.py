"""All sentences on a model, by key: figures come in, words go out.

A sentence is stored as its key and its figures, and written from them: `Said`. In a
template ``up`` and ``down`` round a figure to the side on which the words stay true,
with four digits, or as many as stand behind; ``%`` writes a share, ``'`` a name.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

from pffl.records import Record
from pffl.text import down, up, words

State: TypeAlias = Literal["checked", "assumed", "could not be checked", "failed"]

SENTENCES = {
    # One group
    "cell.above": "{cell:'} has a mean loss of {loss} against a bound of {bound}: "
    "{excess:up} above it",
    "cell.below": "{cell:'} has a mean loss of {loss} against a bound of {bound}: "
    "{room:down} below it",
    "cell.at": "{cell:'} has a mean loss of {loss} against a bound of {bound}: at "
    "the bound",
    "cell.between": "{cell:'} has a mean loss between {low:down} and {high:up} against "
    "a bound of {bound}",
    "cell.at most": "in {cell:'} at most {high:up} against {bound}",
    "cells.more": "{left} more",
    # Training rows
    "training.diverged": "The run diverged and stopped at the last finite model: use a "
    "smaller step size.",
    "training.interrupted": "The run was interrupted; its model is unfinished.",
    "training.no bounds": "No bound was asked for.",
    "training.no bounds.minimax": "The worst group is {cell:'} with a mean loss of "
    "{loss}.",
    "training.no bounds.minimax.gap": "The worst group is {cell:'} with a mean loss of "
    "{loss}, within {gap:up} of the smallest possible{ball}.",
    "ball": " among models with weights of length at most {radius}",
    "training.no bounds.minimax.noise": "The largest mean loss of a group lies between "
    "{low:down} and {high:up} ({confidence:%} sure, all groups together).",
    "training.not measured": "No rows to judge by: {cells}.",
    "training.not measured.audit": "{reason}",
    "training.met": "Every bound is met on {rows}; the closest case: {worst}.",
    "training.met.tolerance": "Every bound is met on {rows}, up to a tolerance of "
    "{tolerance} of it; the worst case: {worst}.",
    "training.met.noise": "Every bound is met on {rows}, noise allowed for "
    "({confidence:%} sure, all groups together).",
    "training.impossible": "{nobody}; the worst case here: {worst}.{smallest}",
    "training.not met": "Not every bound is met; the worst case: {worst}.",
    "training.not met.slack": "Not every bound is met; the worst case: {worst}. There "
    "is a model that meets them all; the multiplier bound {multiplier_bound} is too "
    "small to get there, and explains up to {slack:up}.",
    "training.not met.noise": "Not every bound is met on {rows}, noise allowed for "
    "({confidence:%} sure, all groups together): {cells}.",
    "training.not converged": "{unfinished} Not every bound is met; the worst case: "
    "{worst}.",
    "training.not converged.met": "{unfinished} Every bound is met on {rows}, but a "
    "model with less overall loss may meet them, too; the closest case: {worst}.",
    "training.not converged.no bounds": "{unfinished} {said}",
    "training.not decided": "At ε = {epsilon:g} it is not decided whether every bound "
    "is met on {rows} ({confidence:%} sure, all groups together): {cells}.",
    "nobody": "No linear model, with its own loss, meets all bounds (proved)",
    "nobody.within": "No linear model, with its own loss, meets all bounds (proved for "
    "{limit})",
    "limit": "weights of length at most {reach:down}",
    "smallest.sharp": " The smallest common bound that can be met is {high:up6}.",
    "smallest.between": " The smallest common bound that can be met lies between "
    "{low:down6} and {high:up6}.",
    "smallest.rise": " All bounds together would have to rise by at least {low:down}, "
    "and by {high:up} it is possible.",
    # A run that did not converge
    "unfinished.gap": "The run did not converge: its duality gap is {gap:up}, the "
    "target {target}.",
    "unfinished.raise": "The run did not converge: its duality gap is {gap:up}, the "
    "target {target}: raise {name} (now {now:,}).",
    "unfinished.rounding": "The run did not converge: its duality gap is {gap:up}, the "
    "target {target}. Rounding hides the rest: a larger target_gap or l2, or a "
    "smaller multiplier_bound, would help.",
    "unsettled": "The run did not converge: in its last {last:,} rounds the mean loss "
    "of a group{swung}. Use more rounds (now {rounds:,}), a smaller dual_step_size "
    "(None finds one), or a smaller learning rate or momentum.",
    "swung": ", {cell:'}, swung by {swing:up} of what a constant guess loses (its "
    "standard deviation), and {target} is the most",
    "swung.unknown": " was not known in every round, or they are too few",
    # Test rows
    "test.not measured": "{reason}",
    "test.no bounds": "On {rows} the largest mean loss of a group is {loss}, of "
    "{cell:'}.",
    "test.no bounds.noise": "{rows} the largest mean loss of a group lies between "
    "{low:down} and {high:up}.",
    "test.few": "Fewer than {fewest} rows, too few to judge by: {cells}.",
    "test.few.noise": "About fewer than {fewest} test rows: {cells}.",
    "test.within": "On {rows} no {other}group is above its bound; {worst}.{few}",
    "test.within.noise": "{rows} no group is above its bound.",
    "test.exceeded": "On {rows} {above}; {worst}.{few}",
    "test.exceeded.noise": "{rows} {cells}.",
    "test.not decided": "{rows} it is not decided whether a group is above its bound: "
    "{cells}.",
    "rows.test": "{count:,} test rows",
    "rows.used": "the {count:,} rows used",
    "rows.calibration": "{count:,} calibration rows",
    "rows.chosen": "{count:,} calibration rows, by which the model was chosen,",
    "rows.noise": "On about {count:,} test rows, noise allowed for ({confidence:%} "
    "sure, all groups together),",
    # New people
    "new_people.not measured": "{reason}",
    "new_people.no bounds": "With confidence {confidence:%}, each group by itself, the "
    "{counted}mean loss of new people{kept} is at most the figure in the table; the "
    "largest is that of {cell:'}, at most {high:up}.",
    "new_people.no bounds.noise": "With confidence {confidence:%} the mean loss of new "
    "people is at most {high:up} in a group.",
    "new_people.certified": "With confidence {confidence:%}{who}{standing}",
    "new_people.not certified": "With confidence {confidence:%}{who}{standing}",
    "new_people.certified.noise": "With confidence {confidence:%} the mean loss of new "
    "people is within its bound in every group, noise allowed for.",
    "new_people.not certified.noise": "Not certified at ε = {epsilon:g} of the test "
    "rows: with confidence {confidence:%}, the mean loss of new people is {cells}.",
    "new_people.certified.path": "With confidence {confidence:%} the {counted}mean "
    "loss of new people is within its bound in every group: tested on {rows:,} "
    "calibration rows{which}.{idle}",
    "new_people.not certified.path": "{failed}{lacking}",
    "which": ", model {model} of {models} from the safest on",
    "standing": "{head}; the one with the least room is {cell:'}, at most {high:up} "
    "against a bound of {bound}.{lacking}{idle}",
    "standing.all": "every group is within its bound",
    "standing.some": "{kept} of {many} bounds are certified, taken one at a time",
    "lacking.none": " There are no {rows} rows of {cell:'}.",
    "lacking.never": " {cell:'} is at most {high:up} against a bound of {bound}: its "
    "{rows} rows have a mean loss of {loss}, and more rows like these would not help.",
    "lacking.more": " {cell:'} is at most {high:up} against a bound of {bound}: about "
    "{more:,} more {rows} {who} would show its bound, if they were like these.",
    "idle": " In {idle} group{s} the bound is not below {loss_bound}, the largest loss "
    "of the shipped predictor: true, and trivial.",
    "failed.first": "Not even the safest model (of {models}) can be shown to keep "
    "every bound.",
    "failed.later": "Model {model} of {models} on the path was shown with confidence "
    "{confidence:%} when it was chosen, and is not with the risk of this certificate.",
    # Beside the verdicts
    "warning": "On {rows} the model is no better than a guess: {told}.",
    "binding.none": "No {kind} is binding.",
    "binding.one": "Only the {kind} on {cell:'} is binding.",
    "binding": "Binding {kind}s, by their multipliers: {told}.",
    "gains": "{cell:'} gains most by the bounds: its mean training loss falls from "
    "{before} to {after}.",
    "loses": "{cell:'} loses most: its mean training loss rises from {before} to "
    "{after}.",
    "selection": "The smallest selection rate of a group is {now} of the largest (the "
    "four-fifths rule asks for 0.8).",
    "selection.free": "The smallest selection rate of a group is {now} of the largest, "
    "and {free} without bounds (the four-fifths rule asks for 0.8).",
    "limits": "Predictions are kept between {low:down} and {high:up}; this changes no "
    "group's training loss by more than 0.1 %.",
    "limits.none": "Predictions have no limits: the statement on new people {reason}.",
    "weighted": "rows have weights: losses, errors and rates are weighted means; rows "
    "and people are counted",
    "other data": "other data: these are not the rows that the model was trained on; "
    "see the fingerprints.",
    "scope": "It speaks of models of the same kind on the same scaled inputs, and of "
    "nobody outside the groups.",
    # Statements of a certificate
    "gap": "No other model gives a better trade-off between overall loss and the "
    "bounds than this one by more than {gap:up} (the duality gap).{aim}",
    "gap.risk": "No other model has an overall loss (with its ridge term) that is "
    "smaller than this one's by more than {gap:up}.{aim}",
    "gap.target": " The target was {target}.",
    "infeasible": "{nobody}: in each of them some group is above its bound by at least "
    "{low:down}.",
    "attainable": "The smallest bound that all groups can meet together lies between "
    "{low:down6} and {high:up6}{models}.",
    "attainable.models": ", among linear models with {limit}",
    "implied": "Bounds on all labels of a group bound its loss as a whole: on {rows} "
    "by their mean, weighted with the labels' shares, in every group at most "
    "{largest:up}.{unseen}",
    "implied.unseen": " With confidence {confidence:%}, all groups at once, the mean "
    "loss of new people is at most the largest of their group's bounds, whatever the "
    "labels' shares; in every group at most {most:up}.",
    "holdout_error": "With confidence {confidence:%}, for all groups at once, the "
    "error rate among new people is at most the figure in the table; at most "
    "{high:up} in {cell:'}, the worst group.",
    "metric": "With confidence {confidence:%}, among new people the largest difference "
    "in {what} lies between {low:down} and {high:up}. {here}",
    "metric.here": "In the test rows it is {value}.",
    "metric.undefined": "In the test rows it is undefined: no rows for {missing}.",
    "metric.dp_gap": "how often groups are predicted positive (demographic parity)",
    "metric.eo_gap": "how often truly positive people of groups are predicted positive "
    "(equal opportunity)",
    "metric.equalised_odds": "how often people of groups with the same true label are "
    "predicted positive (equalised odds)",
    "privacy": "All that was released about any one person of the training rows is "
    "({spent:up}, {delta:g})-differentially private (μ = {mu:up}): whether the person "
    "was there or not changes no probability of what anybody sees by more.{test}",
    "privacy.test": " Test rows are other people, for whom it is ({own:up}, "
    "{delta:g}).",
    # What statements stand on
    "ground.honest": "The silos reported their sums truthfully.",
    "ground.convex": "The loss is convex in the weights of the model.",
    "ground.not convex": "needs convexity, and the loss is not convex in the weights "
    "of this model",
    "ground.ball": "Only models whose weights have length at most {radius} are "
    "considered.",
    "ground.ridge": "There is a ridge term; all models are considered.",
    "ground.reach": "It holds for all weights of length up to {reach:down}, and own "
    "losses.",
    "ground.shipped.noise": "Losses are those of the shipped predictor: inputs "
    "shortened to {clip:g}, losses up to {loss_bound:g}.",
    "ground.sampling": "The rows tested on are drawn like the new people, "
    "independently of each other, each group in the same mixture of silos.",
    "ground.separate": "No test row was used to train the model.",
    "ground.separate.trained": "needs separate rows: these test rows were used in "
    "training",
    "ground.separate.people": "needs separate rows: {many} test rows are of people in "
    "training",
    "ground.separate.unknown": "No test row was used to train the model; the rows are "
    "not at hand.",
    "ground.separate.equal": "No test row was used to train the model; {many:,} of "
    "{rows:,} equal a training row, of the same person or of another.",
    "ground.fixed": "The model was fixed before the test rows were used.",
    "ground.fixed.many": "It is one of {many} models (or paths of models) that were "
    "fixed before the test rows were used; each has 1/{many} of the risk.",
    "ground.fixed.others": "It was set without regard to the test figures of {others} "
    "others, measured on the same rows (under noise: on data of this name); fresh rows "
    "would settle it.",
    "ground.fixed.path": "All models, their order and their bets were fixed before a "
    "calibration row was used; they were tested in this order, each group with the "
    "full risk, up to the first that is not shown.",
    "ground.reuse": "This is certificate {number} on these test rows, and has 1/{part} "
    "of the risk.",
    "ground.limited": "The shipped predictor keeps {what}, so that no loss is above "
    "{most}{more}.",
    "ground.limited.clip": "All figures are those of the model that keeps {what}, so "
    "that no loss is above {most}{more}.",
    "ground.limited.range": "It was declared without these rows that the model keeps "
    "{what}, so that no loss is above {most}{more}.",
    "ground.targets": "All targets lie there, those of new people too.",
    "ground.weights": "Nobody's weight is above {most:up}, of these rows or of new "
    "people.",
    "ground.weights.none": "needs a bound that no row's weight is above "
    "(--weight-bound NUMBER)",
    "ground.alike": "needs rows that count alike, and these have weights",
    "ground.single": "needs one row for each person, and some people have several",
    "ground.secret": "The noise is drawn in secret and exactly, in whole numbers.",
    "ground.seeded": "A seed repeats the noise: whoever knows it can take the noise "
    "off.",
    "ground.declared": "Kinds of columns, categories, groups, labels, silos, fill "
    "values, ranges of inputs, the clip, M, l2 and all settings were declared, and "
    "none was read off the rows.",
    "ground.neighbours": "One person more, less or changed moves nobody else: which "
    "row counts, its part and a simulated silo are keyed hashes of the person's own "
    "{own}.",
    "ground.timing": "Timing, the sizes of messages and which sites take part tell "
    "nothing.",
    "ground.person": "A person is an id: of several rows with it one counts, in one "
    "part.",
    "ground.row": "Each row is another person, as no id says whose rows are: for "
    "somebody with several rows, at a site, at two or in two parts, less is "
    "guaranteed.",
    "ground.noise.one": "Noise: it was added in one place.",
    "ground.noise.each": "Noise: each of {sites} sites adds all of it, as there is no "
    "secure sum; their sum has {times} times what is needed.",
    "ground.noise.shared": "Noise: {sites} sites share it inside secure sums; that of "
    "{enough} is all that is needed.",
    "ground.colluding": "No more than {colluding} of the {sites} sites work together, "
    "with each other or with the server: every site sees the totals, and can take its "
    "own noise off.",
}


class _Formatter(string.Formatter):
    def format_field(self, value: Any, spec: str) -> str:
        side, digits = spec.rstrip("0123456789"), spec.lstrip("updown")
        many = {"digits": int(digits)} if digits.isdecimal() else {}
        match side:
            case "up":
                return up(value, **many)
            case "down":
                return down(value, **many)
            case "%":
                return f"{100 * value:.6g} %"
            case "'":
                return f"'{value}'"
            case "" if isinstance(value, float):
                return words(value)
        return format(value, spec)


FORMATTER = _Formatter()


@cache
def names_in(key: str) -> tuple[str, ...]:
    """Return the names of the figures of a sentence.

    >>> names_in("limit")
    ('reach',)
    """
    return tuple(name for _, name, _, _ in FORMATTER.parse(SENTENCES[key]) if name)


class Said(str):
    """A sentence that knows its key, and the figures that it is made of.

    >>> Said("limit", {"reach": 2.5}).figures
    {'reach': 2.5}
    """

    key: str
    figures: dict[str, Any]

    def __new__(cls, key: str, figures: Mapping[str, Any]) -> Said:
        """Write the sentence of a key."""
        own = super().__new__(cls, FORMATTER.vformat(SENTENCES[key], (), figures))
        own.key, own.figures = key, dict(figures)
        return own

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Copy the words alone."""
        return str, (str(self),)


@dataclass(frozen=True)
class Assumption(Record):
    """One thing that must be true, in words, and what we know of it.

    ``checked``: verified on the data or the model. ``assumed``: no look at them can
    verify it. ``could not be checked``: one could, had more been known. ``failed``:
    verified, and false.
    """

    text: str
    state: State

    @classmethod
    def of(cls, key: str, state: State, **figures: Any) -> Assumption:
        """Build one from the key of its sentence."""
        return cls(Said(f"ground.{key}", figures), state)


HONEST = Assumption.of("honest", "assumed")
