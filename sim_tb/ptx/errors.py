"""Errors of PTX texts, of launches and of running kernels."""


class PtxError(ValueError):
    """A PTX text that cannot be run, a launch with wrong arguments, or a mistake of a kernel.

    Parameters
    ----------
    message : str
        What is wrong.
    line : int, optional
        Line of the PTX text, from 1.
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        self.line = line
        super().__init__(message if line is None else f"line {line}: {message}")


class UnsupportedError(PtxError):
    """An instruction, a modifier or an operand that is not implemented."""
