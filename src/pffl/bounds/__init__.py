"""Bounds: pure mathematics, one bound a file, from sums to numbers.

`gap` and `infeasible` speak of the training rows, `mean`, `rates` and `alarm`
of new people. Nothing here asks a silo, reads a file or writes a sentence.
"""
