"""Recorded requests of the silicon, replayed by the driver in the example SoC."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from examples.soc.system import DATA, PARAMETERS, run
from golden.enums import DataType
from golden.errors import ErrorCode
from golden.memory import hashed
from golden.vectors import Case, Outcome, Refusal, read_cases
from hw.flow.cache import ROOT
from hw.layouts.host import CompletionKind
from hw.layouts.isa import ElementType, Operation

PROGRAM = ROOT / "tests" / "examples" / "replay.c"
RECORDINGS = ROOT / "tests" / "silicon"

DATA_BYTES = 0x0080_0000
"""Bytes of global memory for recorded tensors; behind them is the program."""

BACKGROUND, JOBS, END = 0x0090_0000, 0x00A0_0000, 0x0100_0000
"""Copy of the memory from address 0 on, jobs with their memories, and end of the memory."""

SMEM_STEP = 1024
"""Shared memory is loaded up to a multiple of this, behind what the request writes."""

JOB = np.dtype(
    [
        ("global_address", "<u8"),
        ("global_dim", "<u8", 5),
        ("global_strides", "<u8", 4),
        ("element_strides", "<u4", 5),
        *((name, "<u4") for name in ("tensor_rank", "dtype", "interleave", "swizzle")),
        *((name, "<u4") for name in ("l2_promotion", "oob_fill", "padding")),
        ("box_dim", "<u4", 5),
        *((name, "<i4", 3) for name in ("lower_corner", "upper_corner")),
        *((name, "<u4") for name in ("channels_per_pixel", "pixels_per_column")),
        *((name, "<u4") for name in ("is_bulk", "is_im2col", "operation", "rank")),
        ("coords", "<i4", 5),
        ("offsets", "<u4", 3),
        *((name, "<u4") for name in ("smem_address", "bytes", "element_type", "reduction_op")),
        *((name, "<u4") for name in ("memory_image", "memory_bytes", "smem_image", "smem_bytes")),
        *((name, "<u4") for name in ("result", "result_bytes")),
        *((name, "<u4") for name in ("status", "code", "errors", "complete")),
        ("map", "<u4", 32),
        ("end", "<u4"),
    ]
)
"""``struct job`` of ``replay.c``, with what the compiler puts between and behind the members."""

FIELDS = (
    *("global_address", "global_dim", "global_strides", "element_strides", "dtype", "interleave"),
    *("swizzle", "l2_promotion", "oob_fill", "box_dim", "lower_corner", "upper_corner"),
    *("channels_per_pixel", "pixels_per_column", "smem_address", "bytes"),
)
"""Fields of a recording that a job has, too."""

OPERATIONS = {
    ("load", False): Operation.TENSOR_LOAD,
    ("load", True): Operation.BULK_LOAD,
    ("store", False): Operation.TENSOR_STORE,
    ("store", True): Operation.BULK_STORE,
    ("reduce", False): Operation.TENSOR_REDUCE,
    ("reduce", True): Operation.BULK_REDUCE,
}


def extent(case: Case) -> int:
    """Return an address behind the tensor or the bytes of a case."""
    if case.mode == "bulk":
        return case.global_address + case.bytes
    f, rank = case.fields, case.rank
    steps = [8, *(int(stride) for stride in f["global_strides"][: rank - 1])]
    spans = (
        (int(extent) - 1) * step for extent, step in zip(f["global_dim"][:rank], steps, strict=True)
    )
    return case.global_address + sum(spans) + 16


def fitting(name: str) -> list[Case]:
    """Return the cases of a recording that one unit runs in the memory of the SoC."""
    cases = read_cases(RECORDINGS / name)
    return [case for case in cases if not case.is_multicast and extent(case) < DATA_BYTES]


@dataclass
class Batch:
    """Cases whose jobs are in the memory at once, with their memories."""

    cases: list[Case] = field(default_factory=list)
    jobs: list[np.void] = field(default_factory=list)
    load: dict[int, bytes] = field(default_factory=dict)
    end: int = END

    def place(self, contents: bytes | int) -> int:
        """Reserve memory, from its end down, for contents or for a number of bytes."""
        size = contents if isinstance(contents, int) else len(contents)
        self.end -= -(-size // 64) * 64 + 64
        if not isinstance(contents, int):
            self.load[self.end] = contents
        return self.end

    @property
    def is_full(self) -> bool:
        """True if another case might not fit."""
        return self.end - 0x40000 < JOBS + (len(self.jobs) + 1) * JOB.itemsize

    def add(self, case: Case) -> None:
        """Add a case."""
        job = np.zeros((), JOB)
        f, is_bulk = case.fields, case.mode == "bulk"
        for name in FIELDS:
            if name in f.dtype.names:
                value = np.asarray(f[name])
                if value.ndim:
                    job[name][: min(len(value), len(job[name]))] = value[: len(job[name])]
                else:
                    job[name] = value
        job["tensor_rank"] = job["rank"] = case.rank
        job["is_bulk"], job["is_im2col"] = is_bulk, case.mode == "im2col"
        job["operation"] = OPERATIONS[case.op, is_bulk].value
        job["coords"][: case.rank] = case.coords
        offsets = case.im2col_offsets if case.mode == "im2col" and case.op == "load" else ()
        job["offsets"][: len(offsets)] = offsets
        if case.op == "reduce":
            job["reduction_op"] = int(case.red_op)
            if is_bulk:
                job["element_type"] = element_type(DataType(int(f["dtype"]))).value
        before = case.gmem_before if case.op == "load" else case.gmem_writable().bytes
        if before is not None:
            job["memory_image"], job["memory_bytes"] = self.place(before.tobytes()), before.size
        size = -(-max(case.expect.size, case.smem_address + case.bytes) // SMEM_STEP) * SMEM_STEP
        if case.op != "load":
            size = -(-int(f["smem_before"][1]) // SMEM_STEP) * SMEM_STEP
        job["smem_image"] = self.place(case.smem()[:size].tobytes())
        job["smem_bytes"] = size
        job["result_bytes"] = size if case.op == "load" else before.size
        job["result"] = self.place(int(job["result_bytes"]))
        self.cases.append(case)
        self.jobs.append(job)

    def run(self, native: bool) -> Iterator[tuple[Case, np.void, bytes]]:
        """Run the cases; yield each with its job afterwards, and with its memory."""
        parameters = struct.pack("<3I", len(self.jobs), JOBS, BACKGROUND)
        background = hashed(np.arange(DATA_BYTES, dtype=np.uint64)).astype(np.uint8)
        load = {
            DATA: background.tobytes(),
            BACKGROUND: background[: JOBS - BACKGROUND].tobytes(),
            PARAMETERS: parameters,
            JOBS: np.array(self.jobs, JOB).tobytes(),
        }
        start = min(self.load)
        image = bytearray(END - start)
        for address, contents in self.load.items():
            image[address - start : address - start + len(contents)] = contents
        load[start] = bytes(image)
        ran = run(PROGRAM, load, (JOBS, END - JOBS), native=native)
        assert ran.status == 0, f"{ran.console} status {ran.status}"
        jobs = np.frombuffer(ran.memory, JOB, len(self.jobs))
        for case, job in zip(self.cases, jobs, strict=True):
            first = int(job["result"]) - JOBS
            yield case, job, ran.memory[first : first + int(job["result_bytes"])]


def element_type(data_type: DataType) -> ElementType:
    """Return the number of a type in a request."""
    return ElementType(data_type.format)


def outcome(case: Case, job: np.void, memory: bytes) -> Outcome:
    """Return what is compared with a recording."""
    if job["status"]:
        return Outcome(note=f"the driver returned {int(job['status'])}")
    if case.mode != "bulk" and job["map"].tobytes() != case.descriptor:
        return Outcome(note="the driver made another tensor map")
    refused = None
    if job["errors"]:
        kind, code = divmod(int(job["code"]), 256)
        if job["errors"] != 1 or kind != CompletionKind.ERROR.value:
            return Outcome(note=f"{job['errors']} error records, the last one of kind {kind}")
        refused = Refusal(ErrorCode(code), 0, 0)  # the program keeps the code only
    contents = np.frombuffer(memory, np.uint8)
    if case.op != "load":
        return Outcome(refused=refused, memory=contents)
    if bool(job["complete"]) == bool(refused):
        return Outcome(note=f"complete: {bool(job['complete'])}, refused: {refused}")
    smem = case.smem()
    smem[: contents.size] = contents
    return Outcome(refused=refused, bytes=0 if refused else case.bytes, memory=smem)


def outcomes(cases: Sequence[Case], *, native: bool) -> Iterable[tuple[Case, Outcome]]:
    """Replay cases, in batches; yield each with its outcome."""
    batch = Batch()
    for number, case in enumerate(cases):
        batch.add(case)
        if batch.is_full or number == len(cases) - 1:
            for replayed, job, memory in batch.run(native):
                yield replayed, outcome(replayed, job, memory)
            batch = Batch()
