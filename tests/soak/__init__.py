"""Long runs of random requests without a reset: ``python -m tests.soak``, or ``make soak``."""
