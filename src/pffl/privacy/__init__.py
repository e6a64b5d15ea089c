"""Noise with a budget: accounting, exact noise, and what is declared for a run.

`accounting` adds up what releases cost, `discrete` draws the noise, `terms` is what a
user declares. Nothing here asks a silo or reads a file; which sums are released, and
what one person can change in them, is declared in `queries.release`.
"""

from pffl.privacy.terms import Privacy

__all__ = ["Privacy"]
