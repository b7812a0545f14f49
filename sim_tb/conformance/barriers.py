"""Recorded programs of mbarrier operations: the arrays ``programs``, ``ops`` and ``op_names``.

A program is executed by one warp of one CTA, on eight barriers whose words are 0 at first. Each
instruction has the words, states and predicates that the silicon gave. A program with an error ends
at the instruction that faulted. ``tests/silicon/README.md`` describes the fields.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.archive import VectorError
from golden.errors import ErrorCode
from sim_tb.conformance.form import Arrays, Form
from sim_tb.conformance.instructions import (
    BARRIER_INSTRUCTIONS,
    BarrierInstruction,
    Error,
    LaneGroup,
    active_lanes,
    merged,
    steps_difference,
)

BARRIERS = 8
"""Barriers of a program."""

LANES = 32
NO_SLOT = 255

PROGRAM_FIELDS = {
    **dict.fromkeys(("name", "set", "first", "count", "wide", "error"), ()),
    "final": (BARRIERS,),
}
OPERATION_FIELDS = dict.fromkeys(
    (
        *("op", "bar", "save", "src", "count", "value", "lanes", "lane_step", "bar_step"),
        *("misalign", "done", "word", "state", "pred"),
    ),
    (),
)
WIDE_FIELDS = {"words": (BARRIERS,), "states": (LANES,), "preds": ()}


FAULTS = {
    Error.MISALIGNED_ADDRESS: {ErrorCode.MBAR_ALIGN},
    Error.ILLEGAL_ADDRESS: {ErrorCode.SMEM_RANGE},
    Error.LAUNCH_FAILURE: {ErrorCode.MBAR_FAULT},
}
"""Errors of a target that a CUDA error stands for."""


@dataclass(frozen=True)
class Result:
    """Results of an instruction: of the silicon, or of a target.

    Parameters
    ----------
    words : list of int
        Words of the eight barriers afterwards.
    states : list of int
        State that each of 32 lanes got; 0 for lanes that are not active, or get none.
    predicates : int
        Bit i is the predicate of lane i.
    error : ErrorCode, optional
        The target's error, if the instruction failed; the other results do not count then.
    """

    words: list[int]
    states: list[int]
    predicates: int
    error: ErrorCode | None = None


@dataclass(frozen=True)
class Operation:
    """One instruction of a program, with its results.

    Parameters
    ----------
    index : int
        Number in the program.
    name : str
        Name in ``op_names``.
    instruction : BarrierInstruction
        The instruction that has this name.
    groups : list of LaneGroup
        Updates that it makes, one for each set of merged lanes, by their lowest lanes.
    value : int
        Word of SET_WORD, and state of TEST_WAIT, TRY_WAIT and PENDING_COUNT without ``source``.
    source : int, optional
        Slot that holds the state.
    save : int, optional
        Slot that takes the returned state of the lowest lane.
    misalign : int
        Bytes that are added to the address.
    faults : bool
        The silicon faulted here, and the program ends.
    word : int, optional
        Word of the barrier of the lowest lane afterwards; None if it was not recorded.
    state : int
        State that the lowest lane got.
    predicate : bool
        Predicate that the lowest lane got.
    wide : Result, optional
        Results of all barriers and lanes; None if they were not recorded.
    """

    index: int
    name: str
    instruction: BarrierInstruction
    groups: list[LaneGroup]
    value: int
    source: int | None
    save: int | None
    misalign: int
    faults: bool
    word: int | None
    state: int
    predicate: bool
    wide: Result | None

    @property
    def lowest_lane(self) -> int:
        """Lowest active lane."""
        return self.groups[0].lanes[0]

    @property
    def barrier(self) -> int:
        """Barrier of the lowest lane."""
        return self.groups[0].barrier

    def difference(self, result: Result) -> str | None:
        """Return the first difference between the silicon's results and a target's, or None."""
        lane = self.lowest_lane
        word, state = result.words[self.barrier], result.states[lane]
        predicate = bool(result.predicates >> lane & 1)
        if self.word is not None and word != self.word:
            return f"word: expected {self.word:#018x}, got {word:#018x}"
        if state != self.state:
            return f"state: expected {self.state:#018x}, got {state:#018x}"
        if predicate != self.predicate:
            return f"predicate: expected {self.predicate}, got {predicate}"
        if self.wide is not None:
            for name in ("words", "states", "predicates"):
                expected, got = getattr(self.wide, name), getattr(result, name)
                if expected != got:
                    return f"{name} of all lanes: expected {expected}, got {got}"
        return None


@dataclass(frozen=True)
class BarrierProgram:
    """A recorded program.

    Parameters
    ----------
    index : int
        Row in ``programs``.
    name, kind : str
        Name, often empty, and the set that the program belongs to.
    error : Error
        CUDA error that ended the program.
    operations : list of Operation
        Instructions up to the one that faulted.
    final : list of int, optional
        Words of the barriers at the end; None if they were not recorded.
    """

    index: int
    name: str
    kind: str
    error: Error
    operations: list[Operation]
    final: list[int] | None

    def __str__(self) -> str:
        return f"{self.kind}[{self.index}]{' ' + self.name if self.name else ''}"

    def check(self, results: Iterable[Result]) -> str | None:
        """Compare the results of a target with the silicon's.

        Parameters
        ----------
        results : iterable of Result
            Results of ``operations``, in order, up to the first one that failed.

        Returns
        -------
        str or None
            The first difference, or None.
        """
        answers = list(results)
        difference = steps_difference("operation", self.operations, answers, self.error, FAULTS)
        if difference or self.error:
            return difference and f"{self}: {difference}"
        words = answers[-1].words if answers else [0] * BARRIERS
        if self.final is not None and words != self.final:
            return f"{self}: words at the end: expected {self.final}, got {words}"
        return None


@dataclass(frozen=True)
class BarrierFile:
    """Programs of a file, decoded one at a time.

    Parameters
    ----------
    rows, ops, wide : ndarray
        Arrays of the file.
    names : list of str
        Array ``op_names``.
    """

    rows: NDArray[Any]
    ops: NDArray[Any]
    wide: NDArray[Any]
    names: list[str]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[BarrierProgram]:
        return (self[index] for index in range(len(self)))

    @cached_property
    def kinds(self) -> list[str]:
        """Set of each program."""
        return [str(kind) for kind in self.rows["set"]]

    @cached_property
    def columns(self) -> dict[str, list[int]]:
        """Fields of ``ops`` as lists, which are faster to read than rows."""
        return {field: self.ops[field].tolist() for field in OPERATION_FIELDS}

    def __getitem__(self, index: int) -> BarrierProgram:
        """Return a program by its row."""
        row = self.rows[index]
        first, count, wide = int(row["first"]), int(row["count"]), int(row["wide"])
        has_words = row["set"] != "first"
        operations = []
        for number in range(count):
            result = None if wide < 0 else self._wide(wide + number)
            faults = bool(row["error"]) and not self.columns["done"][first + number]
            operations.append(self._operation(first + number, number, result, has_words, faults))
            if faults:
                break
        return BarrierProgram(
            index,
            str(row["name"]),
            str(row["set"]),
            Error(int(row["error"])),
            operations,
            row["final"].tolist() if has_words and not row["error"] else None,
        )

    def _wide(self, number: int) -> Result:
        row = self.wide[number]
        return Result(row["words"].tolist(), row["states"].tolist(), int(row["preds"]))

    def _operation(
        self, at: int, index: int, wide: Result | None, has_words: bool, faults: bool
    ) -> Operation:
        """Return the operation in row ``at`` of ``ops``, which is number ``index`` of a program."""
        row = {field: column[at] for field, column in self.columns.items()}
        name = self.names[row["op"]]
        instruction = BARRIER_INSTRUCTIONS[name]
        return Operation(
            index,
            name,
            instruction,
            self._groups(instruction, row),
            row["value"],
            source=None if row["src"] == NO_SLOT else row["src"],
            save=None if row["save"] == NO_SLOT else row["save"],
            misalign=row["misalign"],
            faults=faults,
            word=row["word"] if has_words else None,
            state=row["state"],
            predicate=bool(row["pred"]),
            wide=wide,
        )

    def _groups(self, instruction: BarrierInstruction, row: dict[str, int]) -> list[LaneGroup]:
        """Return the updates of an operation."""
        lanes, count, barrier = active_lanes(row["lanes"]), row["count"], row["bar"]
        counts = [(count + row["lane_step"] * lane) % 2**32 for lane in lanes]
        if instruction.counts_one:
            counts = [1] * len(lanes)
        barriers = [(barrier + row["bar_step"] * lane) % BARRIERS for lane in lanes]
        return merged(instruction, lanes, barriers, counts)


def is_barrier_file(arrays: Arrays) -> bool:
    """Return whether the arrays are those of a file of barrier programs."""
    return {"programs", "ops"} <= arrays.keys()


def barrier_file(path: Path, arrays: Arrays) -> BarrierFile:
    """Return the programs of a file.

    Raises
    ------
    VectorError
        If the file does not have the form.
    """
    form = Form(path, arrays)
    rows = form.rows("programs", PROGRAM_FIELDS)
    ops = form.rows("ops", OPERATION_FIELDS)
    wide = form.rows("wide", WIDE_FIELDS)
    names = form.names("op_names")
    form.check_range("operations", rows["first"], rows["count"], len(ops))
    has_wide = rows["wide"] >= 0
    form.check_range("wide results", rows["wide"][has_wide], rows["count"][has_wide], len(wide))
    form.check_index("op", ops["op"], len(names))
    form.check_index("bar", ops["bar"], BARRIERS)
    check_names(path, [names[number] for number in np.unique(ops["op"])])
    check_errors(path, rows["error"])
    if not ops["lanes"].all():
        raise VectorError(f"{path}: an operation has no lanes")
    return BarrierFile(rows, ops, wide, names)


def check_names(path: Path, names: Sequence[str], known: Sequence[str] = ()) -> None:
    """Refuse names of instructions that are neither of barriers nor in ``known``."""
    unknown = [name for name in names if name not in BARRIER_INSTRUCTIONS and name not in known]
    if unknown:
        raise VectorError(f"{path}: unknown instructions {', '.join(map(repr, unknown))}")


def check_errors(path: Path, errors: NDArray[Any]) -> None:
    """Refuse numbers of CUDA errors that are not in `Error`."""
    unknown = sorted({int(error) for error in errors} - {int(error) for error in Error})
    if unknown:
        raise VectorError(f"{path}: unknown CUDA errors {', '.join(map(str, unknown))}")
