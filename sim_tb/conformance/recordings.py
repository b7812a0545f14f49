"""Recordings of the silicon: every form of file, and the comparison of its cases with a target.

The form of a file follows from its arrays, not from its name. A case is a row of ``cases``, a
program, or a row of ``before``.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from golden import conformance as golden_conformance
from golden.archive import VectorError, read_arrays
from golden.vectors import Case, check, read_cases
from sim_tb.conformance import golden_barriers, golden_clusters
from sim_tb.conformance.barriers import (
    BarrierFile,
    BarrierProgram,
    Result,
    barrier_file,
    is_barrier_file,
)
from sim_tb.conformance.clusters import ClusterFile, ClusterProgram, cluster_file, is_cluster_file
from sim_tb.conformance.clusters import Outcome as ClusterOutcome
from sim_tb.conformance.memory_side import MemorySide
from sim_tb.conformance.parts import PartFile, is_part_file, part_file
from sim_tb.conformance.replacements import (
    ReplacementFile,
    is_replacement_file,
    replacement_file,
)

GOLDEN_ONLY = "is run by the golden model only"

ProgramT = TypeVar("ProgramT")
ProgramT_co = TypeVar("ProgramT_co", covariant=True)
OutcomeT = TypeVar("OutcomeT")


@dataclass(frozen=True)
class Verdict:
    """Comparison of a case with the silicon.

    Parameters
    ----------
    difference : str or None
        First difference; None if the case passed.
    note : str or None
        A difference that is allowed, and reported.
    """

    difference: str | None
    note: str | None = None


class Recording(Protocol):
    """Cases of a file."""

    @property
    def kinds(self) -> Sequence[str]:
        """Kind of each case."""
        ...

    def verdicts(
        self, numbers: Sequence[int], target: str, memory: MemorySide
    ) -> Iterator[Verdict]:
        """Run cases; yield the verdict of each, in order.

        Parameters
        ----------
        numbers : sequence of int
            Numbers of the cases.
        target : "golden" or "rtl"
            Target that runs them.
        memory : MemorySide
            What is around the RTL.
        """
        ...


@dataclass(frozen=True)
class Transfers:
    """Transfers and encodings of tensor maps."""

    cases: list[Case]

    @property
    def kinds(self) -> list[str]:
        """Kind of each case."""
        return [case.kind for case in self.cases]

    def verdicts(
        self, numbers: Sequence[int], target: str, memory: MemorySide
    ) -> Iterator[Verdict]:
        """Run cases, as ``Recording`` says. The RTL runs no encodings."""
        cases = [self.cases[number] for number in numbers]
        transfers = [case for case in cases if not case.is_encoding]
        if target == "golden":
            runs = golden_conformance.outcomes(transfers)
        else:
            from sim_tb.conformance import rtl  # here, because only the RTL needs a simulator

            runs = rtl.outcomes(transfers, memory=memory)
        for case in cases:
            if not case.is_encoding:
                yield Verdict(check(case, next(runs)))
            elif target == "golden":
                yield Verdict(golden_conformance.check_encoding(case))
            else:
                yield Verdict(f"{case}: {GOLDEN_ONLY}")


class ProgramFile(Protocol[ProgramT_co]):
    """Programs of a file, decoded one at a time."""

    @property
    def kinds(self) -> Sequence[str]:
        """Set or name of each program."""

    def __getitem__(self, number: int) -> ProgramT_co: ...


class Programs(ABC, Generic[ProgramT, OutcomeT]):
    """Programs of a file, and how each target runs them.

    Members
    -------
    file : ProgramFile
    """

    file: ProgramFile[ProgramT]

    @abstractmethod
    def golden(self, program: ProgramT) -> OutcomeT:
        """Run a program through the golden model; return its outcome."""

    @abstractmethod
    def simulated(self, programs: Sequence[ProgramT], memory: MemorySide) -> Iterator[OutcomeT]:
        """Run programs through the RTL; yield the outcome of each."""

    @abstractmethod
    def verdict(self, program: ProgramT, outcome: OutcomeT) -> Verdict:
        """Compare an outcome with the silicon's."""

    @property
    def kinds(self) -> Sequence[str]:
        """Set or name of each program."""
        return self.file.kinds

    def verdicts(
        self, numbers: Sequence[int], target: str, memory: MemorySide
    ) -> Iterator[Verdict]:
        """Run programs, as ``Recording`` says."""
        programs = [self.file[number] for number in numbers]
        outcomes = (
            map(self.golden, programs) if target == "golden" else self.simulated(programs, memory)
        )
        return map(self.verdict, programs, outcomes)


@dataclass(frozen=True)
class Barriers(Programs[BarrierProgram, Iterable[Result]]):
    """Programs of mbarrier operations."""

    file: BarrierFile

    def golden(self, program: BarrierProgram) -> Iterable[Result]:
        """Run a program through the golden model; return its results."""
        return golden_barriers.outcome(program)

    def simulated(
        self, programs: Sequence[BarrierProgram], memory: MemorySide
    ) -> Iterator[Iterable[Result]]:
        """Run programs through the RTL; yield the results of each."""
        from sim_tb.conformance import rtl  # here, because only the RTL needs a simulator

        return rtl.barrier_results(programs, memory=memory)

    def verdict(self, program: BarrierProgram, outcome: Iterable[Result]) -> Verdict:
        """Compare results with the silicon's."""
        return Verdict(program.check(outcome))


@dataclass(frozen=True)
class Clusters(Programs[ClusterProgram, ClusterOutcome | str]):
    """Programs on clusters. The outcome is a message if the RTL could not finish a program."""

    file: ClusterFile

    def golden(self, program: ClusterProgram) -> ClusterOutcome | str:
        """Run a program through the golden model; return its outcome."""
        return golden_clusters.outcome(program)

    def simulated(
        self, programs: Sequence[ClusterProgram], memory: MemorySide
    ) -> Iterator[ClusterOutcome | str]:
        """Run programs through the RTL; yield the outcome of each."""
        from sim_tb.conformance import rtl  # here, because only the RTL needs a simulator

        return rtl.cluster_outcomes(programs, memory=memory)

    def verdict(self, program: ClusterProgram, outcome: ClusterOutcome | str) -> Verdict:
        """Compare an outcome with the silicon's; note the phases that ended at a part."""
        if isinstance(outcome, str):
            return Verdict(f"{program}: {outcome}")
        steps = ", ".join(f"step {n}, {program.steps[n].name}" for n in outcome.parts)
        return Verdict(program.check(outcome), f"{program}: {steps}" if steps else None)


@dataclass(frozen=True)
class GoldenOnly:
    """Cases that only the golden model runs: edits of maps, or parts of ``complete_tx``.

    Threads execute the edits, and the RTL signals all bytes of a request at once.
    """

    file: ReplacementFile | PartFile

    @property
    def kinds(self) -> list[str]:
        """Kind of each case."""
        return self.file.kinds

    def verdicts(
        self, numbers: Sequence[int], target: str, memory: MemorySide
    ) -> Iterator[Verdict]:
        """Run cases, as ``Recording`` says."""
        del memory
        for number in numbers:
            if target == "golden":
                yield Verdict(self.file.check(number))
            else:
                yield Verdict(f"{self.file.kinds[number]}[{number}]: {GOLDEN_ONLY}")


def read_recording(path: Path) -> Recording:
    """Return the cases of a file.

    Raises
    ------
    VectorError
        If the file has none of the forms.
    """
    arrays = read_arrays(path)
    if is_barrier_file(arrays):
        return Barriers(barrier_file(path, arrays))
    if is_cluster_file(arrays):
        return Clusters(cluster_file(path, arrays))
    if is_replacement_file(arrays):
        return GoldenOnly(replacement_file(path, arrays))
    if is_part_file(arrays):
        return GoldenOnly(part_file(path, arrays))
    if "cases" in arrays:
        return Transfers(read_cases(path))
    raise VectorError(
        f"{path}: no known form of recording: its arrays are {', '.join(arrays) or 'none'}: must "
        "have cases (transfers, tensor maps, parts of complete_tx), programs and ops (barriers), "
        "programs and steps (clusters), or before, field and after (tensormap.replace)"
    )
