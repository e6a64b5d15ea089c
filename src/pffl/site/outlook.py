"""What the agreed run with noise will cost a site's people."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pffl.config import Plan
from pffl.errors import UsageError
from pffl.preparation import Setting
from pffl.privacy.accounting import composed, epsilon_of
from pffl.private.run import planned
from pffl.site.agreement import Agreement


@dataclass(frozen=True)
class NoiseOutlook:
    """What a run with noise will release, and what that costs each site's people.

    Attributes
    ----------
    lines
        The releases in words.
    mu
        μ of all of them, training and held-out rows together, as accounts add up.
    """

    lines: tuple[str, ...]
    mu: float

    @classmethod
    def of(cls, plan: Plan, agreed: Agreement) -> NoiseOutlook | None:
        """Plan an agreed run, or one to be agreed on; None where it has no noise.

        Refuse what is not available under noise, or not between machines.
        """
        terms, many = plan.privacy.terms, len(agreed.sites)
        if terms is None:
            return None
        if terms.repeatable:
            raise UsageError(
                "[not-between-machines] [privacy] noise_seed is for rows that are at "
                "hand: sites draw their noise in secret"
            )
        setting = Setting.pooled(agreed.name, agreed.encoding, agreed.splits, many)
        model = plan.model_for(agreed.schema)
        noise, _ = planned(
            setting, plan.constraint, model, plan.method, plan.options, terms
        )
        return cls(
            tuple(noise.lines()), composed([noise.mu("train"), noise.mu("test")])
        )

    def cost(self, delta: float, spent: float = 0.0) -> float:
        """Return ε of an account with Σμ² = `spent`, and the run."""
        return epsilon_of(math.sqrt(self.mu**2 + spent), delta)
