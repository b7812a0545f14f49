"""Random programs on clusters: recorded ones with changes, whose record is the golden outcome.

The steps of a program run one after the other: its outcome depends on timing only within a step.
A program is not drawn if a step of it writes a byte that it also reads or writes otherwise, or
writes a barrier.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import (
    BulkLoad,
    DsmemCopy,
    DsmemReduce,
    ErrorCode,
    Load,
    Plan,
    TmaError,
)
from sim_tb.conformance import golden_clusters, rtl
from sim_tb.conformance.barriers import BARRIERS
from sim_tb.conformance.clusters import (
    BARRIER_ADDRESSES,
    DATA_BYTES,
    FAULTS,
    ClusterFile,
    ClusterProgram,
    Outcome,
    Step,
)
from sim_tb.conformance.recordings import read_recording
from tests.fuzz.draw import extreme
from tests.golden.random_requests import Rng, pick

RECORDED = Path("tests/silicon/clusters.npz")

SAME = 0.125
"""Probability that a program whose changes do not change the outcome is kept."""


@dataclass(frozen=True)
class Drawn:
    """A program with the golden outcome as its record, and that outcome."""

    program: ClusterProgram
    golden: Outcome


@cache
def recorded() -> ClusterFile:
    """Return the recorded programs."""
    file = read_recording(RECORDED).file
    assert isinstance(file, ClusterFile)
    return file


@cache
def forms() -> set[tuple[str, bool]]:
    """Return the instructions of the recorded programs, each with whether its barrier is remote."""
    return {
        (step.name, step.cta != step.issuer)
        for program in recorded()
        for step in program.steps
        if step.instruction is not None
    }


def single(row: Any, steps: NDArray[Any], maps: NDArray[np.uint32]) -> ClusterFile:
    """Return a file of one program without results."""
    row = row.copy()
    row["first"], row["count"], row["words"], row["runs"], row["nruns"] = 0, len(steps), 0, 0, 0
    row["words_live"], row["error"], row["gmem_after"] = False, 0, 0
    words = np.zeros(len(steps) * int(row["ctas"]) * BARRIERS, np.uint64)
    steps = steps.copy()
    steps["done"] = True
    base = recorded()
    return replace(
        base,
        rows=row[None],
        step_rows=steps,
        words=words,
        runs=base.runs[:0],
        blob=base.blob[:0],
        maps=maps,
    )


def depends_on_timing(step: Step) -> bool:
    """Return whether a step writes a barrier, or a byte that it also reads or writes otherwise."""
    request, stores = step.request, step.remote_stores
    spans = []
    if stores is not None:
        spans = [(address, address + len(data)) for address, data in stores.lanes]
    elif isinstance(request, DsmemCopy | DsmemReduce):
        spans = [(request.dst_address, request.dst_address + request.size)]
        if request.dst_cta == step.issuer:
            spans.append((request.smem_address, request.smem_address + request.size))
    elif isinstance(request, BulkLoad):
        spans = [(request.smem_address, request.smem_address + request.size)]
    elif isinstance(request, Load):
        extent = Plan(request.descriptor, request.mode).extent(0)
        spans = [(request.smem_address, request.smem_address + extent)]
    spans.sort()
    if any(end > DATA_BYTES for _, end in spans):
        return True
    if any(first < step.address + 8 and step.address < end for first, end in spans):
        return True
    return any(one[1] > other[0] for one, other in itertools.pairwise(spans))


def drawn(bare: ClusterFile) -> Drawn | None:
    """Return a program with the golden model's results; None if they depend on timing."""
    program = bare[0]
    for step in program.steps:
        if step.instruction and (step.name, step.cta != step.issuer) not in forms():
            return None
    golden = golden_clusters.outcome(program)
    last = golden.results[-1].error
    done = program.steps[: len(golden.results) - (last is not None)]
    try:
        if any(depends_on_timing(step) for step in done):
            return None
    except TmaError:
        return None
    row, steps = bare.rows[0].copy(), bare.step_rows[: len(golden.results)].copy()
    row["count"], row["words_live"] = len(steps), True
    for record, result in zip(steps, golden.results, strict=True):
        record["state"], record["pred"] = result.state, result.predicate
    if last is not None:
        steps[-1]["done"] = False
        errors = [error for error, codes in FAULTS.items() if last in codes]
        if not errors or last is ErrorCode.GMEM_FAULT:
            return None
        # The cluster of the RTL has CTAs that do not run: to it, they are no wrong mask.
        if last is ErrorCode.MASK and program.ctas < rtl.CLUSTER.ctas:
            return None
        row["error"] = errors[0]
    runs, blob = [], []
    if last is None:
        for cta, memory in enumerate(golden.smem):
            changed = np.flatnonzero(program.smem_before(cta) != memory)
            if changed.size:
                first, end = int(changed[0]), int(changed[-1]) + 1
                runs.append((cta, first, end - first, sum(map(len, blob))))
                blob.append(memory[first:end])
    row["nruns"] = len(runs)
    file = replace(
        bare,
        rows=row[None],
        step_rows=steps,
        words=np.concatenate([result.words.ravel() for result in golden.results]),
        runs=np.array(runs, bare.runs.dtype),
        blob=np.concatenate([np.zeros(0, np.uint8), *blob]),
    )
    return Drawn(file[0], golden)


def change(rng: Rng, ctas: int, steps: NDArray[Any], maps: NDArray[np.uint32]) -> None:
    """Make one random change to a step; barriers' first steps, ``INIT``, change rarely."""
    names = np.array(recorded().names)[steps["op"]]
    others = np.flatnonzero(names != "INIT")
    step = steps[int(pick(rng, *others)) if others.size and rng.random() < 0.9 else 0]
    match rng.integers(11):
        case 0:
            step[pick(rng, "issuer", "mbar_cta")] = rng.integers(ctas)
        case 1:
            step["dst"] = rng.integers(ctas + (rng.random() < 0.1))
        case 2:
            step["mask"] = rng.integers(1 << (ctas + (rng.random() < 0.1)))
        case 3:
            step["mbar"] = pick(rng, *BARRIER_ADDRESSES)
        case 4 | 5:
            name = pick(rng, "dst_address", "src_address")
            step[name] = pick(rng, int(step[name]) ^ 1 << int(rng.integers(13)), 0, 128)
        case 6:
            step["size"] = pick(rng, 16, 32, 128, 1024, int(step["size"]) ^ 16, 0, 1)
        case 7:
            step["coord"][int(rng.integers(5))] += int(pick(rng, -1, 1, 16, -100))
        case 8:
            step["offsets"][int(rng.integers(3))] = int(rng.integers(4))
        case 9:
            step["value"] = extreme(rng, 63)
        case 10:
            maps[step["map"], int(rng.integers(16))] ^= np.uint32(1 << int(rng.integers(32)))


def draw(rng: Rng) -> Drawn:
    """Return a random program; most have another outcome than the recorded one."""
    base = recorded()
    while True:
        index = int(rng.integers(len(base)))
        row = base.rows[index]
        first = int(row["first"])
        steps = base.step_rows[first : first + int(row["count"])].copy()
        used, numbers = np.unique(steps["map"], return_inverse=True)
        maps = base.maps[np.minimum(used, len(base.maps) - 1)].copy()
        steps["map"] = numbers
        for _ in range(int(rng.integers(1, 5))):
            change(rng, int(row["ctas"]), steps, maps)
        result = drawn(single(row, steps, maps))
        if result is None:
            continue
        before = golden_clusters.outcome(base[index])
        if difference(before, result.golden) is not None or rng.random() < SAME:
            return result


def difference(want: Outcome, got: Outcome | str) -> str | None:
    """Return the first difference between two outcomes of a program, or None.

    Barriers and shared memory must also agree behind an error. The instruction with the error has
    no result. A phase may end at a part of the bytes of an instruction, which timing decides: then
    the RTL has gone on with the golden words (``Outcome.parts``).
    """
    if isinstance(got, str):
        return got
    for step, (one, other) in enumerate(zip(want.results, got.results, strict=False)):
        names = [each.error.name if each.error else "no error" for each in (one, other)]
        if names[0] != names[1]:
            return f"step {step}: golden model: {names[0]}; RTL: {names[1]}"
        if (one.words != other.words).any():
            cta, barrier = np.argwhere(one.words != other.words)[0].tolist()
            words = [int(each.words[cta, barrier]) for each in (one, other)]
            text = f"step {step}: word {barrier} of CTA {cta}"
            return f"{text}: expected {words[0]:#018x}, got {words[1]:#018x}"
        if not one.error and (one.state, one.predicate) != (other.state, other.predicate):
            return f"step {step}: another state or predicate"
    if len(want.results) != len(got.results):
        return f"expected {len(want.results)} steps, got {len(got.results)}"
    for cta, (data, found) in enumerate(zip(want.smem, got.smem, strict=True)):
        wrong = np.flatnonzero(data != found)
        if wrong.size:
            at = int(wrong[0])
            text = f"shared memory of CTA {cta}, byte {at:#x}"
            return f"{text}: expected {data[at]:#04x}, got {found[at]:#04x}"
    return None


def differences(cases: Sequence[Drawn], seed: int = 1) -> list[str | None]:
    """Run programs on a cluster; return for each how it differs from the golden model, or None."""
    got = rtl.cluster_outcomes([case.program for case in cases], seed=seed)
    return [difference(case.golden, outcome) for case, outcome in zip(cases, got, strict=True)]


def write(path: Path, case: Drawn) -> None:
    """Write a file of one program with the golden model's results, for ``make conformance``."""
    file = case.program.file
    names = {"programs": file.rows, "steps": file.step_rows, "op_names": np.array(file.names)}
    for name in "words", "runs", "blob", "maps", "reductions", "red_async", "st_async":
        names[name] = np.array(getattr(file, name))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **names)


def simpler(case: Drawn) -> Iterator[ClusterFile]:
    """Yield programs that are simpler by a step or a value, without results."""
    file = case.program.file
    row, steps = file.rows[0], file.step_rows
    for number in range(len(steps)):
        yield single(row, np.delete(steps, number), file.maps)
    for number, step in enumerate(steps):
        for name in "issuer", "dst", "mbar_cta", "dst_address", "src_address", "value", "gmem":
            if step[name]:
                less = steps.copy()
                less[number][name] = 0
                yield single(row, less, file.maps)
    if row["ctas"] > 1 + max(steps["issuer"].max(), steps["mbar_cta"].max()):
        fewer = row.copy()
        fewer["ctas"] -= 1
        yield single(fewer, steps, file.maps)


def shrunk(case: Drawn, seed: int = 1) -> Drawn:
    """Return the simplest program found that still differs."""
    while True:
        cases = [found for bare in simpler(case) if len(bare.step_rows) and (found := drawn(bare))]
        answers = differences(cases, seed)
        smaller = [found for found, text in zip(cases, answers, strict=True) if text is not None]
        if not smaller:
            return case
        case = smaller[0]
