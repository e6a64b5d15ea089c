"""Drawn persons in the layouts of the Census's person files, 2017 to 2024."""

from __future__ import annotations

import csv
import io
import zipfile

import numpy as np

from tests.inside import FIPS, RELP_OF_RELSHIPP, archive_name

YEARS = (2018, 2021, 2024)

# Some of the columns, in the order of the file of 2017.
COLUMNS = [
    "RT", "SERIALNO", "SPORDER", "PUMA", "ST", "PWGTP", "AGEP", "CIT", "COW", "DEAR",
    "DEYE", "DREM", "FER", "GCL", "MAR", "MIG", "MIL", "RELP", "SCHL", "SEX", "WKHP",
    "ANC", "DIS", "ESP", "ESR", "HISP", "NATIVITY", "OCCP", "PINCP", "POBP", "POVPIP",
    "PUBCOV", "RAC1P", "RAC2P", "FAGEP",
]  # fmt: skip


def zip_file(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def member_name(state):
    """What the Census calls a state's file."""
    return f"psam_p{FIPS[state]:02d}.csv"


def header(year):
    names = list(COLUMNS)
    if year >= 2019:
        names[names.index("RELP")] = "RELSHIPP"
    if year >= 2023:
        names[names.index("ST")] = "STATE"
    return names


def persons(state, count, seed=0):
    """People with every answer that their age calls for, and no other."""
    rng = np.random.default_rng([seed, FIPS[state]])
    return [_person(rng, state) for _ in range(count)]


def _person(rng, state):
    age = int(rng.integers(0, 96))
    works = age >= 17 and rng.random() < 0.6

    def code(low, high, when=True, width=1):
        return f"{rng.integers(low, high + 1):0{width}d}" if when else ""

    income = int(rng.normal(35_000, 30_000)) if age >= 15 else None
    return {
        "RT": "P",
        "ST": f"{FIPS[state]:02d}",
        "PWGTP": code(1, 300),
        "AGEP": f"{age:02d}",
        "SCHL": code(1, 24, age >= 3, width=2),
        "MAR": code(1, 5) if age >= 15 else "5",
        "RELP": code(0, 17, width=2),
        "DIS": code(1, 2),
        "ESP": code(1, 8, age < 18 and rng.random() < 0.8),
        "CIT": code(1, 5),
        "MIG": code(1, 3, age >= 1),
        "MIL": code(1, 4, age >= 17),
        "ANC": code(1, 4),
        "NATIVITY": code(1, 2),
        "DEAR": code(1, 2),
        "DEYE": code(1, 2),
        "DREM": code(1, 2, age >= 5),
        "SEX": code(1, 2),
        "RAC1P": rng.choice(list("112223456789")),
        "GCL": code(1, 2, age >= 30),
        "COW": code(1, 8, works),
        "OCCP": f"{rng.choice([10, 440, 500, 4760, 9760, 9830]):04d}" if works else "",
        "POBP": f"{rng.choice([1, 6, 56, 72, 110, 207, 301, 303, 417, 527]):03d}",
        "WKHP": code(1, 99, works, width=2),
        "ESR": ("1" if works else code(2, 6)) if age >= 16 else "",
        "FER": code(1, 2, 15 <= age <= 50 and rng.random() < 0.5),
        "PUBCOV": code(1, 2),
        "PINCP": "" if income is None else str(income),
    }


def text(year, state, people):
    """The file of one state, as the Census writes that year."""
    names = header(year)
    newer = {old: new for new, old in reversed(RELP_OF_RELSHIPP.items())}
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for number, person in enumerate(people, start=1):
        row = {**person, "STATE": person["ST"], "SPORDER": "1", "PUMA": "00100"}
        serial = f"{year}HU{number:07d}" if year >= 2018 else f"{year}{number:09d}"
        row["SERIALNO"] = serial
        row["RELSHIPP"] = str(newer.get(int(person["RELP"]), 34))
        writer.writerow([row.get(name, "") for name in names])
    return out.getvalue().encode()


def archive(folder, year, state, people):
    """``csv_p{st}.zip``, with a document beside the persons as there is."""
    folder.mkdir(parents=True, exist_ok=True)
    return zip_file(
        folder / archive_name(state),
        {
            member_name(state): text(year, state, people),
            f"ACS{year}_PUMS_README.pdf": b"%PDF-1.4 drawn",
        },
    )
