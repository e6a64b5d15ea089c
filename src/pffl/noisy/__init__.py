"""Runs with noise: the plan of releases, methods that need few, and the whole run.

`plan` splits the budget before the first query, `methods` train from released sums
alone, `running` is the run as a flow. What a person can change is declared in
`queries.noised`; what may be said of released figures is in `evidence.noise`.
"""
