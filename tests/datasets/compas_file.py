"""Drawn people in the official layout of the COMPAS file, repeated columns included."""

from __future__ import annotations

import csv
import hashlib
import io

import numpy as np

from tests.inside import COMPAS_FILE as FILE
from tests.inside import cache_folder

HEADER = [
    "id", "name", "first", "last", "compas_screening_date", "sex", "dob", "age",
    "age_cat", "race", "juv_fel_count", "decile_score", "juv_misd_count",
    "juv_other_count", "priors_count", "days_b_screening_arrest", "c_jail_in",
    "c_jail_out", "c_case_number", "c_offense_date", "c_arrest_date",
    "c_days_from_compas", "c_charge_degree", "c_charge_desc", "is_recid",
    "r_case_number", "r_charge_degree", "r_days_from_arrest", "r_offense_date",
    "r_charge_desc", "r_jail_in", "r_jail_out", "violent_recid", "is_violent_recid",
    "vr_case_number", "vr_charge_degree", "vr_offense_date", "vr_charge_desc",
    "type_of_assessment", "decile_score", "score_text", "screening_date",
    "v_type_of_assessment", "v_decile_score", "v_score_text", "v_screening_date",
    "in_custody", "out_custody", "priors_count", "start", "end", "event",
    "two_year_recid",
]  # fmt: skip


def compas_file(people=300, seed=0):
    """Every tenth person is outside ProPublica's filter, each for another reason."""
    generator = np.random.default_rng(seed)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for number in range(people):
        writer.writerow(_person(generator, number))
    return text.getvalue().encode()


def _person(generator, number):
    age = int(generator.integers(18, 80))
    recid = int(generator.random() < 0.6 - age / 200)
    band = "Less than 25" if age < 25 else "25 - 45" if age <= 45 else "Greater than 45"
    flaw = number // 10 % 4 if number % 10 == 0 else None
    person = {
        "id": number + 1,
        "name": f"secret, name{number}",
        "first": "secret",
        "last": f"name{number}",
        "dob": "1970-01-01",
        "sex": generator.choice(["Female", "Male"]),
        "age": age,
        "age_cat": band,
        "race": generator.choice(["African-American", "Caucasian", "Other"]),
        "juv_fel_count": int(generator.poisson(0.1)),
        "juv_misd_count": int(generator.poisson(0.1)),
        "juv_other_count": int(generator.poisson(0.2)),
        "priors_count": int(generator.poisson(3)),
        "days_b_screening_arrest": "" if flaw == 0 else 31 if flaw == 1 else -1,
        "is_recid": -1 if flaw == 2 else recid,
        "c_charge_degree": "O" if flaw == 3 else generator.choice(["F", "M"]),
        "c_charge_desc": generator.choice(["Battery", "Theft, petty", ""]),
        "score_text": "Low",
        "two_year_recid": recid,
    }
    return [person.get(column, "") for column in HEADER]


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def is_cached():
    """Whether COMPAS itself is at hand; nothing is downloaded."""
    path = cache_folder() / FILE.name
    return path.is_file() and sha256(path.read_bytes()) == FILE.sha256
