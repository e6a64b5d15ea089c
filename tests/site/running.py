"""A server that runs what was agreed on, over sites that agreed to it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from pffl.callbacks import Callback
from pffl.config import read_plan
from pffl.driver import exchanges as conversation
from pffl.errors import Problems, UsageError
from pffl.preparation import Setting
from pffl.queries import Census, Query, Total
from pffl.site import Agreement
from pffl.solution import Solution
from pffl.solving import solving, with_noise
from tests.inside import Adding


def run(
    server: Any,
    agreed: Agreement,
    *,
    callbacks: Sequence[Callback] = (),
    ask: Callable[[list[Query[Any]]], list[Total]] | None = None,
    sections: dict[str, Any] | None = None,
) -> Solution:
    """Run the agreed sections, or others, over sites; `ask` may lie about a step."""
    with Problems("run", UsageError) as problems:
        plan = read_plan(sections or agreed.run, problems)
    assert plan is not None
    k, terms = len(agreed.sites), plan.privacy.terms
    setting = Setting.pooled(agreed.name, agreed.encoding, agreed.splits, k)
    known: dict[str, Any] = {
        "model": plan.model_for(agreed.schema),
        "method": plan.method,
        "options": plan.options,
        "seed": plan.settings.seed or 0,
    }
    if terms is None:
        flow = solving(setting, plan.constraint, **known)
    else:
        adding = Adding(None, k, True, terms.colluding)
        known |= {"privacy": terms, "adding": adding}
        flow = with_noise(setting, plan.constraint, **known)
    splits = () if terms is not None else agreed.splits
    counts = [Census(agreed.schema, split) for split in splits]
    counted: dict[str, Any] = {}
    talk = conversation(flow, callbacks=callbacks)
    with warnings.catch_warnings(), closing(talk) as exchanges:
        warnings.simplefilter("ignore")
        queries = next(exchanges)
        while True:
            told = ask or server.ask
            if counts and not counted:
                counted = dict(zip(splits, told(counts), strict=True))
            known_already = [isinstance(q, Census) and not q.released for q in queries]
            both = list(zip(queries, known_already, strict=True))
            posed = [q for q, known in both if not known]
            found = iter(told(posed) if posed else ())
            totals = [counted[q.split] if known else next(found) for q, known in both]
            try:
                queries = exchanges.send(totals)
            except StopIteration as done:
                solution: Solution = done.value
                return solution
