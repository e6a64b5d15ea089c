"""Runs with noise: the same queries, each released, and statements with margins.

`privacy.plan` splits the budget before the first query, `training` trains from released
sums alone, `run` is the whole run as a flow, `margins` says beforehand what a budget is
worth. How rows become whole numbers of a proved length is in `queries.release`; what
may be said of released figures is in `evidence.figures`.
"""
