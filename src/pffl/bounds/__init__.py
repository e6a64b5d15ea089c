"""Bounds: pure mathematics, one bound a file, from sums to numbers.

`gap`, `empirical` and `infeasible` speak of the training rows, `holdout`, `logsum`,
`weighted`, `rates` and `risk` of people not seen. Nothing here asks a silo, reads a
file or writes a sentence.
"""
