"""Failures of a kernel, as opposed to failures of the unit or of its testbench."""

import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException

import golden as golden_model
from sim_tb.testbench.errors import CheckError

SIM_TB = Path(__file__).parents[1]
KERNELS = SIM_TB / "kernels"
LIBRARIES = (
    SIM_TB,
    Path(golden_model.__file__).parent,
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)
"""Folders of code that calls kernels, or that kernels call."""

MOST_SHOWN = 60
"""Most characters of an object in a message."""


class KernelError(CheckError):
    """The kernel is wrong. The text names the mistake, the place, the cycle and a remedy."""


def python_error(place: str, error: Exception, most_frames: int | None = None) -> KernelError:
    """Return a ``KernelError`` that describes an error of Python in the code of a kernel.

    Parameters
    ----------
    place : str
        Where it was raised, in words.
    error : Exception
        The text has the error, and the lines of the kernel that led to it. Calls within the project
        and its libraries are left out.
    most_frames : int, optional
        Number of the innermost lines of the kernel in the text. None: all.
    """
    described = TracebackException.from_exception(error)
    frames = [frame for frame in described.stack if _is_own(frame)]
    if isinstance(error, SyntaxError):
        frames = []  # the error has a line of its own
    lines = "".join(described.format_exception_only()).splitlines()
    first = next(n for n, line in enumerate(lines) if not line.startswith(" "))
    shown = frames if most_frames is None else frames[-most_frames:]
    stack = "".join(StackSummary.from_list(shown).format()).splitlines()
    return KernelError("\n".join([f"{place}: {lines.pop(first)}", *lines, *stack]))


def described(value: object) -> str:
    """Return an object and its type as messages show them, in at most 60 characters."""
    text = repr(value)
    shown = text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."
    return f"{shown} ({type(value).__name__})"


@contextmanager
def kernel_code(place: str, *expected: type[Exception]) -> Iterator[None]:
    """Context manager that turns an error of Python in a kernel's code into a ``KernelError``.

    Errors of the types ``expected`` stay what they are, and so do checks that failed.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (CheckError, *expected)):
            raise
        raise python_error(place, error) from error


def _is_own(frame: FrameSummary) -> bool:
    """Return whether a frame is of a kernel's code, or of a module that the kernel brings along."""
    file = Path(frame.filename)
    if file.is_relative_to(KERNELS) and file.name != "__init__.py":
        return True
    made = frame.filename == "<string>" or frame.filename.startswith("<frozen ")
    return not (made or any(map(file.is_relative_to, LIBRARIES)))
