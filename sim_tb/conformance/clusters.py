"""Recorded programs on a cluster of CTAs: the arrays ``programs``, ``steps`` and others.

Each CTA has 8192 bytes of data from address 0 on, then eight barriers whose words are 0 at first.
The steps of a program are executed one after the other, each by one CTA; a request is finished when
the next step begins. ``tests/silicon/README.md`` describes the fields.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from golden import (
    AccessMode,
    BulkLoad,
    BulkPrefetch,
    BulkReduce,
    BulkStore,
    DataType,
    DsmemCopy,
    DsmemReduce,
    HashedMemory,
    Load,
    Prefetch,
    Reduce,
    ReductionOp,
    Request,
    Store,
)
from golden.archive import VectorError
from golden.errors import ErrorCode
from golden.mbarrier import Barrier
from golden.memory import Bytes, hash_words
from golden.vectors import ILLEGAL_INSTRUCTION
from sim_tb.conformance.barriers import BARRIERS, check_errors, check_names
from sim_tb.conformance.form import Arrays, Form
from sim_tb.conformance.instructions import (
    BARRIER_INSTRUCTIONS,
    WORD_BYTES,
    BarrierInstruction,
    Error,
    steps_difference,
)

DATA_BYTES = 8192
"""Bytes of data of each CTA. The barriers follow."""

BARRIER_ADDRESSES = range(DATA_BYTES, DATA_BYTES + BARRIERS * WORD_BYTES, WORD_BYTES)

WINDOW_BYTES = DATA_BYTES + BARRIERS * WORD_BYTES
"""Shared memory of each CTA that programs may use."""

LANE_STEP = 0x9E3779B97F4A7C15
"""Difference between the values of ``st.async`` and ``red.async`` of neighbouring lanes."""

MASK_64 = (1 << 64) - 1

TENSOR_INSTRUCTIONS = {
    f"{mode}_{kind}": (access, kind)
    for mode, access in (("TILE", AccessMode.TILE), ("IM", AccessMode.IM2COL))
    for kind in ("LD", "LD_CTA", "MC", "ST", "RED", "PF")
    if (mode, kind) != ("IM", "LD_CTA")
}
"""Mode and kind of each instruction with a tensor map."""

REQUEST_INSTRUCTIONS = {
    *("DCOPY", "DRED", "BULK_LD", "BULK_LD_CTA", "BULK_MC", "BULK_ST", "BULK_RED", "BULK_PF"),
    *TENSOR_INSTRUCTIONS,
}
"""Instructions that are requests to the unit."""

REMOTE_STORES = {"STAS", "REDAS"}
"""Instructions of threads that store to the shared memory of a cluster."""

PROGRAM_FIELDS = {
    **dict.fromkeys(
        (
            *("name", "first", "count", "ctas", "seed", "small", "gmem", "error", "words_live"),
            *("words", "runs", "nruns", "gmem_at"),
        ),
        (),
    ),
    "gmem_after": (2,),
}
STEP_FIELDS = {
    **dict.fromkeys(
        (
            *("op", "issuer", "dst", "mbar_cta", "sub", "rank", "lanes", "modulo", "mask", "map"),
            *("dst_address", "src_address", "size", "mbar", "lane_step", "gmem", "value", "done"),
            *("state", "pred"),
        ),
        (),
    ),
    "coord": (5,),
    "offsets": (3,),
}
RUN_FIELDS = dict.fromkeys(("cta", "offset", "length", "blob"), ())


FAULTS = {
    Error.ILLEGAL_INSTRUCTION: ILLEGAL_INSTRUCTION,
    Error.MISALIGNED_ADDRESS: {
        *(ErrorCode.SMEM_ALIGN, ErrorCode.MBAR_ALIGN, ErrorCode.BULK_ALIGN),
    },
    Error.ILLEGAL_ADDRESS: {ErrorCode.SMEM_RANGE, ErrorCode.GMEM_FAULT},
    Error.LAUNCH_FAILURE: {
        *(ErrorCode.MBAR_FAULT, ErrorCode.MASK, ErrorCode.DST_CTA, ErrorCode.SMEM_RANGE),
    },
}
"""Errors of a target that a CUDA error stands for."""


@dataclass(frozen=True)
class Result:
    """Results of a step on a target.

    Parameters
    ----------
    words : ndarray
        Words of the barriers afterwards, of shape (CTAs, 8).
    state : int
        State that the step returned, or 0.
    predicate : bool
        Predicate that the step returned, or False.
    error : ErrorCode, optional
        The target's error. An error that silicon does not report is none: see ``Step.is_silent``.
    """

    words: NDArray[np.uint64]
    state: int = 0
    predicate: bool = False
    error: ErrorCode | None = None


@dataclass(frozen=True)
class Outcome:
    """Outcome of a program on a target.

    Parameters
    ----------
    results : list of Result
        Results of the steps, in order, up to the first one with an error.
    smem : list of ndarray
        Data of each CTA afterwards, ``DATA_BYTES`` bytes.
    gmem : ndarray, optional
        Bytes of global memory that ``ClusterProgram.gmem_after`` has, if it was recorded.
    parts : list of int
        Steps for which ``Step.ended_at_a_part`` is true. The target then went on with the words of
        the silicon, which are those in ``results``.
    """

    results: list[Result]
    smem: list[Bytes]
    gmem: Bytes | None
    parts: list[int]


class Machine(Protocol):
    """A target that executes a program: its barriers, and what its last step returned."""

    state: int
    predicate: bool

    def words(self) -> NDArray[np.uint64]:
        """Return the words of the barriers, of shape (CTAs, 8)."""
        ...

    def set_words(self, words: NDArray[np.uint64]) -> None:
        """Set the words of the barriers, of shape (CTAs, 8)."""


class Progress:
    """Results of a program, while a machine executes its steps.

    Attributes
    ----------
    results, parts : list
        The same as in ``Outcome``.
    """

    def __init__(self, machine: Machine) -> None:
        self.results: list[Result] = []
        self.parts: list[int] = []
        self._machine = machine
        self._words = machine.words()

    def end(self, step: "Step", error: ErrorCode | None) -> bool:
        """Take the result of an executed step; return whether the program goes on."""
        machine, words = self._machine, self._machine.words()
        if step.words is not None and step.ended_at_a_part(self._words, words):
            self.parts.append(step.index)
            machine.set_words(step.words)
            words = step.words
        self._words = words
        self.results.append(Result(words, machine.state, machine.predicate, error))
        return error is None


@dataclass(frozen=True)
class RemoteStores:
    """Stores of the lanes of ``st.async`` or ``red.async``.

    Parameters
    ----------
    cta : int
        CTA that is written, and whose barrier counts the bytes.
    lanes : list of (int, bytes)
        For each lane, the byte offset in the shared memory of that CTA, and the 4 to 16 bytes or
        the operand of the reduction.
    reduction : (DataType, ReductionOp), optional
        Type and operation of ``red.async``.
    """

    cta: int
    lanes: list[tuple[int, bytes]]
    reduction: tuple[DataType, ReductionOp] | None = None


@dataclass(frozen=True)
class Step:
    """A step of a program, with its results. Exactly one of the three kinds is set.

    Parameters
    ----------
    index : int
        Number in the program.
    name : str
        Name in ``op_names``.
    issuer : int
        CTA whose thread executes the step.
    instruction : BarrierInstruction, optional
        mbarrier instruction, with ``cta``, ``address`` and ``count``.
    request : Request, optional
        Request to the unit. Its map has the global address of the program.
    remote_stores : RemoteStores, optional
        ``st.async`` or ``red.async``, whose barrier is at ``address``.
    cta, count, value : int
        Operands of ``instruction``: CTA that holds the barrier, its arrivals, bytes or parity, and
        the word of SET_WORD.
    address : int
        Byte offset of the barrier of any step; ignored by steps without a barrier.
    faults : bool
        The silicon refused the step or faulted, and the program ends.
    words : ndarray, optional
        Words of the barriers afterwards, of shape (CTAs, 8); None if the barriers were not read.
    state : int
        State that the instruction returned.
    predicate : bool
        Predicate that the instruction returned.
    """

    index: int
    name: str
    issuer: int
    instruction: BarrierInstruction | None
    request: Request | None
    remote_stores: RemoteStores | None
    cta: int
    address: int
    count: int
    value: int
    faults: bool
    words: NDArray[np.uint64] | None
    state: int
    predicate: bool

    def is_silent(self, error: ErrorCode) -> bool:
        """Return whether silicon does not report an error.

        It reports no fault of a barrier to the thread of another CTA, and none that the bytes of a
        request cause: it only sets the lock.
        """
        is_local = self.instruction is not None and self.cta == self.issuer
        return error is ErrorCode.MBAR_FAULT and not is_local

    def ended_at_a_part(self, before: NDArray[np.uint64], words: NDArray[np.uint64]) -> bool:
        """Return whether a phase ended at a part of the step's bytes, on silicon or on the target.

        A request signals its bytes in parts. If the phase waits for nothing but fewer bytes than
        come, a partial sum may meet the expected bytes exactly. The phase then ends there, and the
        other bytes count for the next phase. The silicon and the target have different parts.

        Parameters
        ----------
        before, words : ndarray
            Words of the target before and after the step, of shape (CTAs, 8).
        """
        if self.instruction is not None or self.words is None:
            return False
        differ = np.argwhere(words != self.words).tolist()
        return bool(differ) and all(
            _is_end_at_a_part(*(int(each[cta, barrier]) for each in (before, self.words, words)))
            for cta, barrier in differ
        )

    def difference(self, result: Result) -> str | None:
        """Return the first difference between the silicon's results and a target's, or None."""
        if self.words is not None and (result.words != self.words).any():
            cta, barrier = np.argwhere(result.words != self.words)[0].tolist()
            expected, got = int(self.words[cta, barrier]), int(result.words[cta, barrier])
            return f"word {barrier} of CTA {cta}: expected {expected:#018x}, got {got:#018x}"
        if result.state != self.state:
            return f"state: expected {self.state:#018x}, got {result.state:#018x}"
        if result.predicate != self.predicate:
            return f"predicate: expected {self.predicate}, got {result.predicate}"
        return None


@dataclass(frozen=True)
class ClusterProgram:
    """A recorded program.

    Parameters
    ----------
    index : int
        Row in ``programs``.
    name : str
        Name, which several programs may share.
    ctas : int
        CTAs of the cluster.
    error : Error
        CUDA error that ended the program.
    steps : list of Step
        Steps up to the one that faulted.
    """

    index: int
    name: str
    ctas: int
    error: Error
    steps: list[Step]
    row: Any
    file: "ClusterFile"

    def __str__(self) -> str:
        return f"{self.name}[{self.index}]"

    def smem_before(self, cta: int) -> Bytes:
        """Return a new copy of a CTA's data before the program: ``DATA_BYTES`` bytes."""
        word = np.arange(DATA_BYTES // 4, dtype=np.uint32)
        seed = int(self.row["seed"]) * 0x9E3779B9 & 0xFFFFFFFF
        word ^= np.uint32(seed ^ cta << 20 ^ 0x5A5A0000)
        data = hash_words(word)
        if self.row["small"]:
            data = np.where(data >> 31, data, data & 7).astype(np.uint32)
        return data.astype("<u4").view(np.uint8)

    def smem_after(self, cta: int) -> Bytes:
        """Return a CTA's data after the program; that of a program with an error is not known."""
        data = self.smem_before(cta)
        first = int(self.row["runs"])
        for run in self.file.runs[first : first + int(self.row["nruns"])]:
            if run["cta"] == cta:
                blob, offset, length = int(run["blob"]), int(run["offset"]), int(run["length"])
                data[offset : offset + length] = self.file.blob[blob : blob + length]
        return data

    @property
    def barriers_in_data(self) -> set[int]:
        """Offsets of barriers that lie in the data.

        Silicon keeps the word of a barrier in a cache, and only those of ``BARRIER_ADDRESSES`` were
        written back: at these offsets, the recorded data has no word.
        """
        used = (step.address for step in self.steps if step.name != "NOP")
        return {address for address in used if address < DATA_BYTES}

    @property
    def has_hashed_memory(self) -> bool:
        """True if global memory holds the hash of its addresses, and not their multiples of 4."""
        return bool(self.row["gmem"] == 0)

    def gmem_before(self, addresses: NDArray[np.uint64]) -> Bytes:
        """Return the bytes of global memory at ``addresses`` before the program."""
        if self.has_hashed_memory:
            return HashedMemory().read(addresses)
        word = (addresses >> np.uint64(2)).astype(np.uint32)
        return (word >> (8 * (addresses & np.uint64(3))).astype(np.uint32)).astype(np.uint8)

    @property
    def gmem_address(self) -> int:
        """Address of the global memory that ``gmem_after`` returns."""
        return int(self.row["gmem_at"])

    def gmem_after(self) -> Bytes | None:
        """Return global memory from ``gmem_address`` on, afterwards; None if not recorded."""
        offset, length = (int(n) for n in self.row["gmem_after"])
        return self.file.blob[offset : offset + length] if length and not self.error else None

    def check(self, outcome: Outcome) -> str | None:
        """Compare the outcome on a target with the silicon's; return the difference, or None."""
        difference = steps_difference("step", self.steps, outcome.results, self.error, FAULTS)
        if difference or self.error:
            return difference and f"{self}: {difference}"
        return self._memory_difference(outcome)

    def _memory_difference(self, outcome: Outcome) -> str | None:
        """Return the first difference in memory, or None."""
        for cta in range(self.ctas):
            name, data = f"{self}: shared memory of CTA {cta}", outcome.smem[cta]
            difference = _first_difference(
                name, self.smem_after(cta), data, hidden=self.barriers_in_data
            )
            if difference:
                return difference
        expected = self.gmem_after()
        if expected is None:
            return None
        name = f"{self}: global memory"
        return _first_difference(name, expected, outcome.gmem, base=self.gmem_address)


def _first_difference(
    name: str, want: Bytes, got: Bytes | None, *, base: int = 0, hidden: Iterable[int] = ()
) -> str | None:
    """Return the first difference between two memories that begin at ``base``, or None.

    ``hidden`` has the offsets of words that are not compared.
    """
    if got is None or got.shape != want.shape:
        return f"{name}: no bytes"
    differ = want != got
    for offset in hidden:
        differ[offset : offset + WORD_BYTES] = False
    if not differ.any():
        return None
    at = int(differ.argmax())
    return (
        f"{name}: {int(differ.sum())} bytes differ, first {base + at:#x}: expected "
        f"{want[at]:#04x}, got {got[at]:#04x}"
    )


@dataclass(frozen=True)
class ClusterFile:
    """Programs of a file, decoded one at a time.

    Parameters
    ----------
    rows, step_rows, words, runs, blob, maps : ndarray
        Arrays of the file: ``programs``, ``steps`` and so on.
    names, reductions, red_async, st_async : list of str
        Arrays of names: ``op_names`` and so on.
    """

    rows: NDArray[Any]
    step_rows: NDArray[Any]
    words: NDArray[np.uint64]
    runs: NDArray[Any]
    blob: Bytes
    maps: NDArray[np.uint32]
    names: list[str]
    reductions: list[str]
    red_async: list[str]
    st_async: list[str]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[ClusterProgram]:
        return (self[index] for index in range(len(self)))

    @cached_property
    def kinds(self) -> list[str]:
        """Name of each program."""
        return [str(name) for name in self.rows["name"]]

    def __getitem__(self, index: int) -> ClusterProgram:
        """Return a program by its row."""
        row = self.rows[index]
        first, count, ctas = int(row["first"]), int(row["count"]), int(row["ctas"])
        shape = count, ctas, BARRIERS
        at = int(row["words"])
        words = self.words[at : at + count * ctas * BARRIERS].reshape(shape)
        steps = []
        for number in range(count):
            step = self.step_rows[first + number]
            faults = bool(row["error"]) and not step["done"]
            recorded = words[number] if row["words_live"] and not faults else None
            steps.append(self._step(number, step, recorded, faults))
            if faults:
                break
        error = Error(int(row["error"]))
        return ClusterProgram(index, str(row["name"]), ctas, error, steps, row, self)

    def _step(self, index: int, row: Any, words: NDArray[np.uint64] | None, faults: bool) -> Step:
        name = self.names[row["op"]]
        instruction = BARRIER_INSTRUCTIONS.get(name)
        count = int(row["size"])
        if instruction is not None and instruction.counts_one:
            count = 1
        return Step(
            index,
            name,
            int(row["issuer"]),
            instruction,
            self._request(name, row) if name in REQUEST_INSTRUCTIONS else None,
            self._remote_stores(name, row) if name in REMOTE_STORES else None,
            int(row["mbar_cta"]),
            int(row["mbar"]),
            count,
            int(row["value"]),
            faults,
            words,
            int(row["state"]),
            bool(row["pred"]),
        )

    def _request(self, name: str, row: Any) -> Request:
        """Return the request of a step."""
        smem_address, source = int(row["dst_address"]), int(row["src_address"])
        size, gmem, sub = int(row["size"]), int(row["gmem"]), int(row["sub"])
        mbarrier, holder, dst = int(row["mbar"]), int(row["mbar_cta"]), int(row["dst"])
        multicast: dict[str, Any] = {"mbarrier": mbarrier, "cta_mask": int(row["mask"])}
        unicast: dict[str, Any] = {"mbarrier": mbarrier, "dst_cta": dst, "mbarrier_cta": holder}
        match name:
            case "DCOPY":
                return DsmemCopy(dst, smem_address, source, size, mbarrier, holder)
            case "DRED":
                reduction = reduction_of(self.reductions[sub])
                return DsmemReduce(dst, smem_address, source, size, mbarrier, holder, *reduction)
            case "BULK_LD":
                return BulkLoad(gmem, smem_address, size, **unicast)
            case "BULK_LD_CTA":
                return BulkLoad(gmem, smem_address, size, mbarrier)
            case "BULK_MC":
                return BulkLoad(gmem, smem_address, size, **multicast)
            case "BULK_ST":
                return BulkStore(gmem, source, size)
            case "BULK_RED":
                return BulkReduce(gmem, source, size, *reduction_of(self.reductions[sub]))
            case "BULK_PF":
                return BulkPrefetch(gmem, size)
        mode, kind = TENSOR_INSTRUCTIONS[name]
        rank = int(row["rank"])
        operands: dict[str, Any] = {
            "tensor_map": self.maps[row["map"]].astype("<u4").tobytes(),
            "coords": tuple(row["coord"][:rank].tolist()),
            "mode": mode,
        }
        if kind in ("ST", "RED"):
            operands["smem_address"] = source
            if kind == "ST":
                return Store(**operands)
            return Reduce(**operands, op=reduction_of(self.reductions[sub])[1])
        if mode is AccessMode.IM2COL:
            operands["im2col_offsets"] = tuple(row["offsets"][: max(rank - 2, 0)].tolist())
        if kind == "PF":
            return Prefetch(**operands)
        operands["smem_address"] = smem_address
        if kind == "LD_CTA":
            return Load(**operands, mbarrier=mbarrier)
        return Load(**operands, **(multicast if kind == "MC" else unicast))

    def _remote_stores(self, name: str, row: Any) -> RemoteStores:
        """Return the stores of ``st.async`` or ``red.async``."""
        lanes = []
        reduction = None
        if name == "REDAS":
            reduction = reduction_of(self.red_async[row["sub"]])
        for lane in range(max(int(row["lanes"]), 1)):
            value = (int(row["value"]) + lane * LANE_STEP) & MASK_64
            if reduction is None:
                data = stored_bytes(self.st_async[row["sub"]], value)
            else:
                value = value % int(row["modulo"]) if row["modulo"] else value
                data = value.to_bytes(8, "little")[: reduction[0].itemsize]
            address = int(row["dst_address"]) + int(row["lane_step"]) * lane
            lanes.append((address, data))
        return RemoteStores(int(row["dst"]), lanes, reduction)


def _is_end_at_a_part(before: int, one: int, other: int) -> bool:
    """Return whether two words differ in nothing but a phase that ended at a part of the bytes."""
    start = Barrier.decode(before)
    early, late = sorted(
        map(Barrier.decode, (one, other)), key=lambda end: end.phase == start.phase
    )
    rest = late.tx_count
    return (
        (start.pending, start.tx_count > 0, rest < 0) == (0, True, True)
        and late == replace(start, tx_count=rest)
        and early == replace(late, phase=1 - start.phase, pending=start.expected)
    )


DATA_TYPES = {
    "u32": DataType.UINT32,
    "s32": DataType.INT32,
    "b32": DataType.UINT32,
    "u64": DataType.UINT64,
    "s64": DataType.INT64,
    "b64": DataType.UINT64,
}


def reduction_of(name: str) -> tuple[DataType, ReductionOp]:
    """Return type and operation of a reduction such as ``add.u32``.

    Raises
    ------
    KeyError
        If there is no such type or operation.
    """
    op, _, kind = name.partition(".")
    return DATA_TYPES[kind], ReductionOp[op.upper()]


def stored_bytes(form: str, value: int) -> bytes:
    """Return the bytes that ``st.async`` of a form such as ``v2.b32`` stores.

    The elements are the value, in elements of 32 bits its low and its high half, and then their
    complements.

    Raises
    ------
    KeyError
        If there is no such form.
    """
    vector, _, kind = form.rpartition(".")
    bits = {"32": 32, "64": 64}[kind[1:]]
    elements = {"": 1, "v2": 2, "v4": 4}[vector]
    halves = [value & 0xFFFFFFFF, value >> 32] if bits == 32 else [value]
    mask = (1 << bits) - 1
    parts = [*halves, *(half ^ mask for half in halves)][:elements]
    return b"".join(part.to_bytes(bits // 8, "little") for part in parts)


def is_cluster_file(arrays: Arrays) -> bool:
    """Return whether the arrays are those of a file of cluster programs."""
    return {"programs", "steps"} <= arrays.keys()


def cluster_file(path: Path, arrays: Arrays) -> ClusterFile:
    """Return the programs of a file.

    Raises
    ------
    VectorError
        If the file does not have the form.
    """
    form = Form(path, arrays)
    file = ClusterFile(
        form.rows("programs", PROGRAM_FIELDS),
        form.rows("steps", STEP_FIELDS),
        form.unsigned("words", (None,), 64),
        form.rows("runs", RUN_FIELDS),
        form.unsigned("blob", (None,), 8),
        form.unsigned("maps", (None, 32), 32),
        *(form.names(name) for name in ("op_names", "reductions", "red_async", "st_async")),
    )
    rows, steps, runs = file.rows, file.step_rows, file.runs
    form.check_range("steps", rows["first"], rows["count"], len(steps))
    per_step = rows["ctas"].astype(np.int64) * BARRIERS
    form.check_range("words", rows["words"], rows["count"] * per_step, len(file.words))
    form.check_range("runs", rows["runs"], rows["nruns"], len(runs))
    after = rows["gmem_after"]
    form.check_range("bytes of gmem_after", after[:, 0], after[:, 1], len(file.blob))
    form.check_range("bytes of a run", runs["blob"], runs["length"], len(file.blob))
    form.check_range("bytes of a run", runs["offset"], runs["length"], DATA_BYTES)
    form.check_index("op", steps["op"], len(file.names))
    form.check_index("ctas - 1", rows["ctas"].astype(np.int64) - 1, 16)
    check_errors(path, rows["error"])
    used = np.array([file.names[number] for number in steps["op"]])
    check_names(path, np.unique(used).tolist(), [*REQUEST_INSTRUCTIONS, *REMOTE_STORES])
    tensor = np.isin(used, list(TENSOR_INSTRUCTIONS))
    form.check_index("map", steps["map"][tensor], len(file.maps))
    for names, instructions, decode in (
        (file.reductions, ("DRED", "BULK_RED", "TILE_RED", "IM_RED"), reduction_of),
        (file.red_async, ("REDAS",), reduction_of),
        (file.st_async, ("STAS",), lambda name: stored_bytes(name, 0)),
    ):
        numbers = steps["sub"][np.isin(used, instructions)]
        form.check_index("sub", numbers, len(names))
        for number in np.unique(numbers):
            try:
                decode(names[number])
            except KeyError as error:
                raise VectorError(f"{path}: unknown type or operation {names[number]}") from error
    return file
