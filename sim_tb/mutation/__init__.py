"""Mutation score of the unit's tests: ``make mutate``.

``hw.flow.mutate`` plants the mutants. ``suites`` runs tests on them, ``results`` keeps what came
out, and ``command`` reports it.
"""
