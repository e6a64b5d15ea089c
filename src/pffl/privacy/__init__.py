"""Noise with a budget: what is declared, what it costs, and exact noise.

`terms` is what a user declares, and what releases cost; `discrete` draws the noise.
Nothing of these two asks a silo or reads a file; which sums are released, and what one
person can change in them, is declared in `queries.release`.
"""

from pffl.privacy.terms import Privacy

__all__ = ["Privacy"]
