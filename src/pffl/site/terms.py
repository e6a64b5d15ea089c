"""What the agreed run says of noise: sites read nothing else of it."""

from __future__ import annotations

from pffl.config import Plan, read_plan
from pffl.errors import Problems, UsageError
from pffl.queries.release import Adding
from pffl.site.agreement import Agreement
from pffl.solving import sharing


def plan_of(agreement: Agreement) -> Plan:
    """Return the run that was agreed on; raise all that is wrong with it at once."""
    with Problems("the agreed run", UsageError) as problems:
        plan = read_plan(agreement.run, problems)
    if plan is None or plan.settings.seed is None:
        raise UsageError("[no-seed] the agreed run has no seed: all must draw alike")
    return plan


def adding_of(agreement: Agreement) -> Adding | None:
    """Say how the sites share the noise of the agreed run; None where it has none."""
    terms = plan_of(agreement).privacy.terms
    if terms is None:
        return None
    if terms.repeatable:
        raise UsageError(
            "[noise-seed] the agreed run has a seed for the noise ('noise_seed'): "
            "whoever knows it can take the noise off"
        )
    return sharing(len(agreement.sites), terms)
