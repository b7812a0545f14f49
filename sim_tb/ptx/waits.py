"""Waits of threads, and the answers that they wait for."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False)
class Answer:
    """Answer of the unit, or of another part of the machine, for which threads may wait.

    Attributes
    ----------
    cycle : int or None
        Clock from which the answer is there.
    value : int
        Result of the operation, such as the state of an arrival, or 1 for a completed phase.
    """

    cycle: int | None = None
    value: int = 0

    def give(self, cycle: int, value: int = 0) -> None:
        """Let the threads that wait go on from ``cycle``."""
        self.cycle, self.value = cycle, value

    def is_there(self) -> bool:
        """Return whether the answer is there."""
        return self.cycle is not None


@dataclass(eq=False)
class Wait:
    """Condition that a fragment waits for: it goes on from the clock that ``ready`` returns.

    Parameters
    ----------
    ready : callable
        Returns that clock, or None as long as the fragment has to wait.
    reason : str
        What it waits for, for messages.
    state : callable, optional
        Returns the state of what it waits for, in words.
    """

    ready: Callable[[], int | None]
    reason: str
    state: Callable[[], str] = str

    @classmethod
    def until(
        cls,
        answers: "list[Answer]",
        reason: str,
        finish: Callable[[], None],
        state: Callable[[], str] = str,
    ) -> "Wait":
        """Return the wait for all ``answers``; ``finish`` is called when the last is there."""

        def ready() -> int | None:
            if not all(answer.is_there() for answer in answers):
                return None
            finish()
            return max(answer.cycle or 0 for answer in answers)

        return cls(ready, reason, state)


class Yield:
    """Result of an instruction that gives other threads a turn, such as ``nanosleep``."""


YIELD = Yield()
