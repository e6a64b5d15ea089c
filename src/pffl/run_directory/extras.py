"""What a run directory holds beside the run itself: a certificate and a report."""

from __future__ import annotations

from pffl.data.federation import Federation
from pffl.engines.base import Engine
from pffl.errors import MissingExtraError
from pffl.files import json_text
from pffl.run_directory.claim import Claim
from pffl.solution import Solution


def write_extras(
    claimed: Claim,
    solution: Solution,
    federation: Federation | Engine,
    *,
    confidence: float,
) -> tuple[list[tuple[str, str]], list[str]]:
    """Write both; return titles and names of the files, and remarks.

    An interrupted run gets neither; a run without bounds, or without the extra
    ``report``, gets one of them.
    """
    from pffl.certify import certify
    from pffl.report.page import render

    if solution.status == "interrupted":
        return [], []
    added, notes = [], []
    if solution.problem.n_cells:
        certificate = certify(solution, federation, confidence=confidence)
        text = json_text(certificate.as_dict())
        claimed.add("certificate.json", text.encode())
        added.append(("Certificate", "certificate.json"))
    try:
        claimed.add("report.html", render([claimed.directory]).encode())
        added.append(("Report", "report.html"))
    except MissingExtraError as error:
        notes.append(str(error))
    return added, notes
