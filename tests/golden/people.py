"""Made-up people in the layout of the COMPAS and Adult files, and three small tables.

Sizes of cells and rates are about those of the real files, a fifth of Adult. All draws
are uniform numbers, whose stream NumPy keeps the same between versions.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Words = NDArray[np.str_]

#: The columns of the COMPAS file that anybody uses.
COMPAS = (
    "id", "sex", "age", "age_cat", "race", "juv_fel_count", "juv_misd_count",
    "juv_other_count", "priors_count", "days_b_screening_arrest", "c_charge_degree",
    "c_charge_desc", "is_recid", "score_text", "two_year_recid",
)  # fmt: skip
ADULT = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status",
    "occupation", "relationship", "race", "sex", "capital-gain", "capital-loss",
    "hours-per-week", "native-country", "income",
)  # fmt: skip
#: Share of people and effect on the score of an income over $50,000.
SCHOOLS = {
    "HS-grad": (0.50, -0.5), "Some-college": (0.24, 0.0), "Bachelors": (0.17, 1.2),
    "Masters": (0.07, 1.6), "Doctorate": (0.02, 2.4),
}  # fmt: skip
JOBS = {
    "Adm-clerical": (0.18, -0.2), "Craft-repair": (0.22, 0.0), "Sales": (0.20, 0.3),
    "Exec-managerial": (0.18, 0.9), "Other-service": (0.16, -0.9), "?": (0.06, -0.6),
}  # fmt: skip
CLASSES = {
    "Private": (0.72, 0.0), "Self-emp-inc": (0.08, 0.6), "State-gov": (0.14, 0.1),
    "?": (0.06, -0.3),
}  # fmt: skip
COUNTRIES = {"United-States": (0.90, 0.0), "Mexico": (0.06, -0.6), "?": (0.04, 0.1)}

WARDS = {
    "heart": (0.40, 0.2), "bone": (0.34, -0.2), "skin": (0.20, 0.0),
    "eye": (0.02, 0.0), "none": (0.04, 0.3),
}  # fmt: skip


class Dice:
    """Uniform numbers, and what can be made of them."""

    def __init__(self, seed: int, people: int) -> None:
        self.generator, self.people = np.random.default_rng(seed), people

    def uniform(self) -> Floats:
        return self.generator.random(self.people)

    def normal(self) -> Floats:
        """About normal: the sum of twelve."""
        return self.generator.random((12, self.people)).sum(axis=0) - 6.0

    def flag(self, rate: float | Floats) -> NDArray[np.bool_]:
        return self.uniform() < rate

    def count(self, mean: float | Floats) -> NDArray[np.int64]:
        """A long tail: geometric."""
        ratio = mean / (1.0 + np.asarray(mean))
        return np.floor(np.log(1.0 - self.uniform()) / np.log(ratio)).astype(int)

    def choice(self, table: Mapping[str, tuple[float, float]]) -> tuple[Words, Floats]:
        """Values by their shares, and their effects."""
        ends = np.cumsum([share for share, _ in table.values()])
        found = np.minimum(np.searchsorted(ends, self.uniform()), len(table) - 1)
        effects = np.array([effect for _, effect in table.values()])
        return np.array(list(table))[found], effects[found]


def compas_file(people: int = 4000, seed: int = 7) -> bytes:
    """Made-up COMPAS; one of 50 is outside ProPublica's filter."""
    dice = Dice(seed, people)
    female = dice.flag(0.19)
    age = np.clip(18 + dice.count(14.0), 18, 80)
    priors = np.minimum(dice.count(np.where(female, 2.0, 3.5)), 38)
    juvenile = {
        f"juv_{kind}_count": np.minimum(dice.count(mean), 9)
        for kind, mean in (("fel", 0.06), ("misd", 0.09), ("other", 0.11))
    }
    felony = dice.flag(0.64)
    slope = np.where(female, 0.1, 0.7)  # what tells of men tells little of women
    score = -1.2 + slope * np.log1p(priors) - 0.035 * (age - 33) + 0.3 * felony
    score += 0.3 * juvenile["juv_other_count"] + 0.4 * female + 0.4 * dice.normal()
    again = dice.flag(1.0 / (1.0 + np.exp(-score)))
    band = np.where(age < 25, "Less than 25", "25 - 45")
    race, _ = dice.choice(
        {"African-American": (0.51, 0), "Caucasian": (0.34, 0), "Other": (0.15, 0)}
    )
    columns = {
        "id": np.arange(1, people + 1),
        "sex": np.where(female, "Female", "Male"),
        "age": age,
        "age_cat": np.where(age > 45, "Greater than 45", band),
        "race": race,
        **juvenile,
        "priors_count": priors,
        "days_b_screening_arrest": np.where(dice.flag(0.02), "", "-1"),
        "c_charge_degree": np.where(felony, "F", "M"),
        "c_charge_desc": np.where(dice.flag(0.5), "Battery", "Theft, petty"),
        "is_recid": again.astype(int),
        "score_text": np.repeat("Low", people),
        "two_year_recid": again.astype(int),
    }
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COMPAS)
    writer.writerows(zip(*(columns[name] for name in COMPAS), strict=True))
    return text.getvalue().encode()


def adult_files(people: int = 9600, seed: int = 11) -> tuple[bytes, bytes]:
    """Made-up Adult: its training file, with two thirds of the people, and its test.

    A seventh of the real people; shares, rates and columns are alike.
    """
    dice = Dice(seed, people)
    female = dice.flag(0.33)
    married = dice.flag(np.where(female, 0.15, 0.61))
    age = np.clip(17 + dice.count(21.0), 17, 90)
    hours = np.clip(np.round(40 + 11 * dice.normal() - 4 * female), 1, 99).astype(int)
    parts = {
        name: dice.choice(table)
        for name, table in (
            ("workclass", CLASSES),
            ("education", SCHOOLS),
            ("occupation", JOBS),
            ("native-country", COUNTRIES),
        )
    }
    gain = np.where(dice.flag(0.08), 2000 + 400 * dice.count(9.0), 0)
    loss = np.where(dice.flag(0.047), 1500 + 50 * dice.count(8.0), 0)
    score = -2.6 + 2.0 * married + 0.03 * (age - 38) + 0.03 * (hours - 40)
    score += sum(effect for _, effect in parts.values())
    score += 0.00025 * gain + 0.0004 * loss + 0.3 * ~female + 0.4 * dice.normal()
    rich = dice.flag(1.0 / (1.0 + np.exp(-score)))
    spouse = np.where(female, "Wife", "Husband")
    alone = np.where(dice.flag(0.3), "Divorced", "Never-married")
    child = np.where(dice.flag(0.3), "Own-child", "Not-in-family")
    race, _ = dice.choice(
        {"White": (0.85, 0.0), "Black": (0.10, 0.0), "Other": (0.05, 0.0)}
    )
    columns = {
        "age": age,
        **{name: values for name, (values, _) in parts.items()},
        "fnlwgt": 10_000 + np.floor(400_000 * dice.uniform()).astype(int),
        "education-num": np.repeat(9, people),
        "marital-status": np.where(married, "Married-civ-spouse", alone),
        "relationship": np.where(married, spouse, child),
        "race": race,
        "sex": np.where(female, "Female", "Male"),
        "capital-gain": np.minimum(gain, 99_999),
        "capital-loss": np.minimum(loss, 4_000),
        "hours-per-week": hours,
        "income": np.where(rich, ">50K", "<=50K"),
    }
    lines = [
        ", ".join(map(str, row))
        for row in zip(*(columns[name] for name in ADULT), strict=True)
    ]
    cut = 2 * people // 3
    first = "\n".join([*lines[:cut], "", ""])
    second = "\n".join(
        ["|1x3 Cross validator", *(f"{line}." for line in lines[cut:]), "", ""]
    )
    return first.encode(), second.encode()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def letters(people: int = 1200, seed: int = 3) -> pd.DataFrame:
    """People with a free text of 5 to 12 words out of 900, some of which tell."""
    dice = Dice(seed, people)
    north = dice.flag(0.4)
    lengths = 5 + np.floor(8 * dice.uniform()).astype(int)
    words = np.floor(900 * dice.generator.random((people, 12)) ** 2).astype(int)
    said = np.arange(12) < lengths[:, None]
    score = np.where(said, np.cos(0.37 * words), 0.0).sum(axis=1) - 0.5 * north
    return pd.DataFrame(
        {
            "letter": [
                " ".join(f"w{word}" for word in row[keep])
                for row, keep in zip(words, said, strict=True)
            ],
            "age": 18 + np.floor(60 * dice.uniform()),
            "region": np.where(north, "north", "south"),
            "office": np.array(["a", "b", "c"])[np.arange(people) % 3],
            "granted": np.where(score + dice.normal() > 0, "yes", "no"),
        }
    )


def patients(people: int = 1500, seed: int = 5) -> pd.DataFrame:
    """People with three inputs, a weight, one of three outcomes, and days of stay."""
    dice = Dice(seed, people)
    old = dice.flag(0.35)
    inputs = {name: dice.normal() for name in ("pulse", "sugar", "weight")}
    mean = inputs["pulse"] - 0.6 * inputs["sugar"] + 0.5 * old
    outcome = np.digitize(mean + 1.2 * dice.normal(), (-0.7, 0.9))
    days = 12 + 3.0 * mean + (2.0 + 2.0 * old) * dice.normal()
    return pd.DataFrame(
        {
            **inputs,
            "band": np.where(old, "old", "young"),
            "clinic": np.array(["east", "west", "mid", "sea"])[np.arange(people) % 4],
            "counts": np.round(0.5 + 2.0 * dice.uniform(), 3),
            "outcome": np.array(["better", "same", "worse"])[outcome],
            "days": np.clip(np.round(days, 2), 0.0, 30.0),
        }
    )


def visits(people: int = 700, seed: int = 9, *, wrong: float = 0.0) -> pd.DataFrame:
    """One to four rows of each person, who has one group and one clinic.

    Some have no ward and some no count of tests; one ward is rare. A share of `wrong`
    of the labels of one group are the other way round.
    """
    dice = Dice(seed, people)
    rows = 1 + np.floor(4 * dice.uniform()).astype(int)
    own, group = dice.normal(), dice.flag(0.3)
    who = np.repeat(np.arange(people), rows)
    each = Dice(seed + 1, len(who))
    dose, delay = own[who] + 0.5 * each.normal(), each.normal()
    score = 0.9 * dose - 0.5 * delay - 0.7 * group[who] + 0.6 * each.normal()
    ward, effect = each.choice(WARDS)
    tests = np.where(each.flag(0.08), np.nan, each.count(2.0))
    score += effect + 0.1 * np.nan_to_num(tests)
    came = each.flag(1 / (1 + np.exp(-1.5 * score)))
    came = came ^ (group[who] & each.flag(wrong))
    return pd.DataFrame(
        {
            "who": [f"p{seed}-{person:04d}" for person in who],
            "dose": dose,
            "delay": delay,
            "ward": pd.Series(ward).where(ward != "none", None),
            "tests": tests,
            "sex": np.where(group[who], "f", "m"),
            "clinic": np.array(["east", "west", "mid"])[who % 3],
            "came": np.where(came, "yes", "no"),
        }
    )


def forecasts(people: int = 3000, seed: int = 13) -> tuple[Floats, Words, Words]:
    """Somebody's probabilities, too sure of one group; what came, and the groups."""
    dice = Dice(seed, people)
    group = np.where(dice.flag(0.3), "a", "b")
    chance = 1.0 / (1.0 + np.exp(-dice.normal()))
    truth = np.where(group == "a", 0.5 + 0.6 * (chance - 0.5), chance)
    came = np.where(dice.flag(truth), "yes", "no")
    return np.round(chance, 6), came, group
