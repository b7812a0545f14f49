"""Errors that the testbench raises when a check fails."""


class CheckError(AssertionError):
    """A check of the testbench failed: the unit broke a rule of its ports."""


class WaitTimeoutError(CheckError):
    """An event did not come in time. The text lists everything that is outstanding."""


class LayoutError(RuntimeError):
    """Python and C++ disagree about a record or a number that they share."""
