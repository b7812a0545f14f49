"""Form of the entries: something wrong, its mended twin, and the words that must be said."""

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import golden
from sim_tb.sm.kernel import Kernel

CYCLE = re.compile(r"\bcycle \d+")
STATE = re.compile(r"\n(barriers|warpgroups):\n")
"""Lines of a ledger behind which the state of a run is listed, after the causes."""


@dataclass(frozen=True)
class Mistake:
    """An entry of the catalogue.

    Parameters
    ----------
    name : str
        Name of its section in ``docs/mistakes.md``.
    said : tuple of str
        Words that the message contains, in this order: the cause and the place.
    wrong, mended : Kernel or function
        A kernel to run; or a function that returns the messages about a map or a request.
    """

    name: str
    said: tuple[str, ...]
    wrong: Kernel | Callable[[], str]
    mended: Kernel | Callable[[], str]

    def is_in(self, message: str) -> bool:
        """Return whether a message has all words, in their order."""
        return re.search(".*".join(map(re.escape, self.said)), message, re.DOTALL) is not None


@dataclass
class Group:
    """A group of entries, which is a section of the document.

    Members
    -------
    title : str
    mistakes : list of Mistake
    """

    title: str
    mistakes: list[Mistake] = field(default_factory=list)

    def kernel(self, name: str, *said: str) -> Callable[[type[Kernel]], type[Kernel]]:
        """Return a decorator that adds a kernel, which has the mistake unless it is ``mended``."""

        def add(cls: type[Kernel]) -> type[Kernel]:
            cls.name = name
            self.mistakes.append(Mistake(name, said, cls(), cls(mended=True)))
            return cls

        return add

    def map(
        self, name: str, *said: str, wrong: Mapping[str, Any], mended: Mapping[str, Any]
    ) -> None:
        """Add the arguments of a tensor map, which ``golden.lint`` judges."""
        self.check(name, *said, wrong=lambda: lint(wrong), mended=lambda: lint(mended))

    def request(self, name: str, *said: str, wrong: Any, mended: Any, **options: Any) -> None:
        """Add a request, which ``golden.check`` and ``golden.advice`` judge."""
        self.check(
            name,
            *said,
            wrong=lambda: judge(wrong, **options),
            mended=lambda: judge(mended, **options),
        )

    def check(
        self, name: str, *said: str, wrong: Callable[[], str], mended: Callable[[], str]
    ) -> None:
        """Add functions that return the messages about a map or a request."""
        self.mistakes.append(Mistake(name, said, wrong, mended))


def lint(tensor_map: Any, arch: golden.Arch = golden.Arch.SM_90A) -> str:
    """Return the errors and warnings about a tensor map, one per line."""
    findings = golden.lint(tensor_map, arch)
    return "\n".join(str(f) for f in findings if f.severity is not golden.Severity.NOTE)


def judge(request: golden.Request, **options: Any) -> str:
    """Return the error about a request, or the warnings about it, one per line."""
    try:
        golden.check(request, **options)
    except golden.TmaError as error:
        return str(error)
    return "\n".join(map(str, golden.advice(request)))


def refusal(make: Callable[[], object]) -> str:
    """Return the ``TmaError`` or the warnings that a function raises, with their notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            make()
        except golden.TmaError as error:
            return "\n".join([str(error), *getattr(error, "__notes__", ())])
    return "\n".join(str(each.message) for each in caught)


def message(error: str) -> str:
    """Return what a run says: its error, without cycles and without the state of the run."""
    return STATE.split(CYCLE.sub("cycle N", error))[0]
