"""Recordings of the silicon: every form of file, and the comparison of its cases with a target.

The form of a file follows from its arrays, not from its name. A case is a row of ``cases``, a
program, or a row of ``before``.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from golden import conformance as golden_conformance
from golden.archive import VectorError, read_arrays
from golden.vectors import Case, check, read_cases
from sim_tb.conformance import golden_barriers, golden_clusters
from sim_tb.conformance.barriers import BarrierFile, Result, barrier_file, is_barrier_file
from sim_tb.conformance.clusters import ClusterFile, ClusterProgram, cluster_file, is_cluster_file
from sim_tb.conformance.clusters import Outcome as ClusterOutcome
from sim_tb.conformance.parts import PartFile, is_part_file, part_file
from sim_tb.conformance.replacements import (
    ReplacementFile,
    is_replacement_file,
    replacement_file,
)

GOLDEN_ONLY = "is run by the golden model only"


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

    def verdicts(self, numbers: Sequence[int], target: str, models: str) -> Iterator[Verdict]:
        """Run cases; yield the verdict of each, in order.

        Parameters
        ----------
        numbers : sequence of int
            Numbers of the cases.
        target : "golden" or "rtl"
            Target that runs them.
        models : str
            Preset of ``sim_tb.testbench.models`` around the RTL.
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

    def verdicts(self, numbers: Sequence[int], target: str, models: str) -> Iterator[Verdict]:
        """Run cases, as ``Recording`` says. The RTL runs no encodings."""
        cases = [self.cases[number] for number in numbers]
        transfers = [case for case in cases if not case.is_encoding]
        if target == "golden":
            runs = golden_conformance.outcomes(transfers)
        else:
            from sim_tb.conformance import rtl  # here, because only the RTL needs a simulator

            runs = rtl.outcomes(transfers, models=models)
        for case in cases:
            if not case.is_encoding:
                yield Verdict(check(case, next(runs)))
            elif target == "golden":
                yield Verdict(golden_conformance.check_encoding(case))
            else:
                yield Verdict(f"{case}: {GOLDEN_ONLY}")


@dataclass(frozen=True)
class Barriers:
    """Programs of mbarrier operations."""

    file: BarrierFile

    @property
    def kinds(self) -> list[str]:
        """Set of each program."""
        return self.file.kinds

    def verdicts(self, numbers: Sequence[int], target: str, models: str) -> Iterator[Verdict]:
        """Run programs, as ``Recording`` says."""
        programs = [self.file[number] for number in numbers]
        if target == "golden":
            runs: Iterator[Iterable[Result]] = map(golden_barriers.outcome, programs)
        else:
            from sim_tb.conformance import rtl  # here, because only the RTL needs a simulator

            runs = rtl.barrier_results(programs, models=models)
        for program, results in zip(programs, runs, strict=True):
            yield Verdict(program.check(results))


@dataclass(frozen=True)
class Clusters:
    """Programs on clusters."""

    file: ClusterFile

    @property
    def kinds(self) -> list[str]:
        """Name of each program."""
        return self.file.kinds

    def verdicts(self, numbers: Sequence[int], target: str, models: str) -> Iterator[Verdict]:
        """Run programs, as ``Recording`` says."""
        programs = [self.file[number] for number in numbers]
        if target == "golden":
            runs: Iterator[ClusterOutcome | str] = map(golden_clusters.outcome, programs)
        else:
            from sim_tb.conformance import rtl  # here, because only the RTL needs a simulator

            runs = rtl.cluster_outcomes(programs, models=models)
        for program, outcome in zip(programs, runs, strict=True):
            yield cluster_verdict(program, outcome)


def cluster_verdict(program: ClusterProgram, outcome: ClusterOutcome | str) -> Verdict:
    """Return the verdict of a program on a cluster, with a note on phases that ended at a part.

    ``outcome`` is a message if the target could not finish the program.
    """
    if isinstance(outcome, str):
        return Verdict(f"{program}: {outcome}")
    steps = ", ".join(f"step {n}, {program.steps[n].name}" for n in outcome.parts)
    note = f"{program}: {steps}" if steps else None
    return Verdict(program.check(outcome), note)


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

    def verdicts(self, numbers: Sequence[int], target: str, models: str) -> Iterator[Verdict]:
        """Run cases, as ``Recording`` says."""
        del models
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
