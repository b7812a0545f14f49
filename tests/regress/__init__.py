"""All tests on worker processes: ``python -m tests.regress``, or ``make regress``."""
