"""Shadow of a memory: for each word of 4 bytes the last write, and the latest reads.

Its size follows the size of the memory and the number of components, not the length of the run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from golden import Swizzle
from sim_tb.sm.sanitizer.barrier import TrackedBarrier
from sim_tb.sm.sanitizer.requests import TrackedRequest

WORD = 4
"""Bytes of a word. Words that an access covers in part are not followed."""

Words = slice | NDArray[np.int64]
"""Numbers of words, each at most once."""


class Instruction(NamedTuple):
    """An instruction of threads that wrote to memory."""

    text: str
    label: str
    cycle: int

    def __str__(self) -> str:
        return f"{self.text} by {self.label} in cycle {self.cycle}"


@dataclass(eq=False)
class Write:
    """The last write to some words.

    Parameters
    ----------
    source : Instruction or TrackedRequest
    component, time : int
        Event that the write belongs to.
    by_unit : bool
        The unit wrote (async proxy), not the threads.
    swizzle : Swizzle, optional
        None: bytes without a layout.
    barrier : TrackedBarrier, optional
        Barrier that counts the bytes of the write.
    strong : bool
        An atomic operation or another strong access, which does not race with others of its kind.
    storage : TrackedBarrier, optional
        The words hold this barrier.
    words : int
        Number of words whose last write it is.
    """

    source: Instruction | TrackedRequest
    component: int
    time: int
    by_unit: bool
    swizzle: Swizzle | None = None
    barrier: TrackedBarrier | None = None
    strong: bool = False
    storage: TrackedBarrier | None = None
    words: int = 0


class Run(NamedTuple):
    """Words of an access that have one last write: the first one, their number, and that write."""

    word: int
    length: int
    number: int
    write: Write | None


class ReadTimes:
    """Latest read of each word by one component, as the number of its event; 0: none."""

    def __init__(self, words: int) -> None:
        self.times = np.zeros(words, np.int32)
        self.latest = 0

    def first_after(self, words: Words, time: int) -> int | None:
        """Return the first of these words that was read in an event after ``time``, if any."""
        if self.latest <= time:
            return None
        late = self.times[words] > time
        position = int(late.argmax()) if late.size else 0
        if not late.size or not late[position]:
            return None
        return _word_at(words, position)


class Shadow:
    """Last write and latest reads of each word of a memory.

    Parameters
    ----------
    words : int
    where : callable
        Returns the place of a word, for messages.
    is_written : bool
        The memory has contents at first: words that nobody has written may be read.

    Members
    -------
    reads : dict of int to ReadTimes
        By component.
    writes : dict of int to Write
        Writes that are the last ones of some words.
    """

    def __init__(self, words: int, where: Callable[[int], str], *, is_written: bool) -> None:
        self.words = words
        self.where = where
        self.is_written = is_written
        self.reads: dict[int, ReadTimes] = {}
        self.writes: dict[int, Write] = {}
        self._last = np.zeros(words, np.int32)
        self._free: list[int] = []

    def runs(self, words: Words) -> list[Run]:
        """Divide words into runs with one last write."""
        numbers = self._last[words]
        if not numbers.size:
            return []
        first = int(numbers[0])
        if not self.writes or bool((numbers == first).all()):
            return [Run(_word_at(words, 0), numbers.size, first, self.writes.get(first))]
        starts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist()]
        ends = [*starts[1:], numbers.size]
        runs = []
        for start, end in zip(starts, ends, strict=True):
            number = int(numbers[start])
            runs.append(Run(_word_at(words, start), end - start, number, self.writes.get(number)))
        return runs

    def write(self, words: Words, runs: list[Run], write: Write) -> None:
        """Record a write to words whose ``runs`` are given."""
        for run in runs:
            before = run.write
            if before is not None:
                before.words -= run.length
                if not before.words:
                    del self.writes[run.number]
                    self._free.append(run.number)
        write.words = sum(run.length for run in runs)
        if write.words:
            number = self._free.pop() if self._free else len(self.writes) + 1
            self.writes[number] = write
            self._last[words] = number

    def read(self, words: Words, component: int, time: int) -> None:
        """Record a read that belongs to event ``time`` of a component."""
        reads = self.reads.get(component)
        if reads is None:
            reads = self.reads[component] = ReadTimes(self.words)
        reads.times[words] = time
        reads.latest = max(reads.latest, time)

    def last_write(self, word: int) -> Write | None:
        """Return the last write to a word."""
        return self.writes.get(int(self._last[word]))

    def refers_to(self, component: int) -> bool:
        """Return whether a read or a last write is an event of a component."""
        return component in self.reads or any(
            write.component == component for write in self.writes.values()
        )

    def rename(self, component: int, other: int) -> None:
        """Make events of a component the first event of another one."""
        for write in self.writes.values():
            if write.component == component:
                write.component, write.time = other, 1
        reads = self.reads.pop(component, None)
        if reads is not None and reads.latest:
            merged = self.reads.setdefault(other, reads)
            np.copyto(merged.times, 1, where=reads.times > 0)
            merged.latest = 1


def _word_at(words: Words, position: int) -> int:
    if isinstance(words, slice):
        return int(words.start) + position
    return int(words[position])


def byte_range(address: int, size: int) -> slice:
    """Return the words that lie wholly in a range of bytes."""
    first, after = -(-address // WORD), (address + size) // WORD
    return slice(first, max(first, after))


def scattered(addresses: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], int | None]:
    """Return the words of accesses of ``size`` bytes, and the first address that occurs twice."""
    ordered = np.sort(addresses)
    is_repeated = ordered[1:] == ordered[:-1]
    repeated = int(ordered[int(is_repeated.argmax())]) if is_repeated.any() else None
    if size % WORD == 0 and not (ordered % WORD).any():
        return distinct((ordered // WORD)[:, None] + np.arange(size // WORD)), repeated
    touched = distinct(ordered[:, None] + np.arange(size))
    is_first = touched % WORD == 0
    first = touched[is_first] // WORD
    whole = np.searchsorted(touched, first * WORD + WORD - 1)
    inside = whole < touched.size
    inside[inside] = touched[whole[inside]] == first[inside] * WORD + WORD - 1
    last = np.searchsorted(touched, first * WORD)
    return first[inside & (whole - last == WORD - 1)], repeated


def distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the different values in ascending order.

    ``numpy.unique`` does the same, but its first call imports much.
    """
    ordered = np.sort(values, axis=None)
    is_new = np.ones(ordered.size, bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new]
