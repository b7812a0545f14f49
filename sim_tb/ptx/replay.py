"""Recorded launches: memory before and after a kernel on a GPU, run again and compared exactly."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from sim_tb.ptx.errors import PtxError, UnsupportedError
from sim_tb.ptx.machine import GlobalMemory
from sim_tb.ptx.module import Kernel, Module, execute


@dataclass(frozen=True)
class Case:
    """A recorded launch.

    Parameters
    ----------
    name : str
        Name of its files, without suffix.
    launch : dict
        The JSON file: kernel, grid, block, cluster, allocations.
    text : str
        PTX.
    parameters : ndarray
        Bytes of the parameters.
    allocations : list of (int, ndarray, ndarray)
        Address of each allocation, its bytes before and after the launch.
    """

    name: str
    launch: dict[str, Any]
    text: str
    parameters: NDArray[np.uint8]
    allocations: list[tuple[int, NDArray[np.uint8], NDArray[np.uint8]]]

    @classmethod
    def read(cls, path: Path) -> "Case":
        """Read ``path`` with the suffixes ``.json`` and ``.npz``.

        Raises
        ------
        PtxError
            If a file is missing or has not the form of a recorded launch.
        """
        base = path.with_suffix("") if path.suffix in (".json", ".npz") else path
        try:
            launch = json.loads(base.with_suffix(".json").read_text())
            with np.load(base.with_suffix(".npz")) as arrays:
                text = arrays["ptx"].tobytes().decode()
                parameters = np.frombuffer(arrays["params"].tobytes(), np.uint8)
                before, after = arrays["before"], arrays["after"]
                allocations, at, changed_at = [], 0, 0
                fields = arrays["base"].tolist(), arrays["size"].tolist(), arrays["changed"]
                for address, size, changed in zip(*fields, strict=True):
                    old = before[at : at + size]
                    new = after[changed_at : changed_at + size] if changed else old
                    allocations.append((address, old, new))
                    at += size
                    changed_at += size if changed else 0
        except (OSError, ValueError, KeyError) as error:
            raise PtxError(f"{base}: no recorded launch: {error}") from None
        return cls(base.name, launch, text, parameters, allocations)


@dataclass(frozen=True)
class Outcome:
    """Result of a case: whether it passed, and a line about it."""

    passed: bool
    line: str


def _dtype(name: str) -> "np.dtype[Any]":
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _difference(
    allocation: dict[str, Any], address: int, got: NDArray[np.uint8], want: NDArray[np.uint8]
) -> str:
    """Return how two contents of an allocation differ; an empty string if they are equal."""
    different = np.flatnonzero(got != want)
    if not different.size:
        return ""
    dtype = _dtype(allocation["dtype"])
    elements = np.unique(different // dtype.itemsize)
    first = int(elements[0])
    values = [each.view(dtype)[elements] for each in (got, want)]
    with np.errstate(all="ignore"):
        apart = np.abs(values[0].astype(np.float64) - values[1].astype(np.float64)).max()
    return (
        f"{allocation['name']}: {different.size} bytes in {elements.size} elements differ, by at "
        f"most {apart:g}; first at {address + first * dtype.itemsize:#x}: "
        f"{got.view(dtype)[first]} instead of {want.view(dtype)[first]}"
    )


def _parameters(case: Case, kernel: Kernel) -> NDArray[np.uint8]:
    """Return the recorded parameters at the offsets that they have here."""
    layout = case.launch["param_layout"]
    sizes = [size for _, _, size in kernel.parameters]
    if [size for _, size in layout] != sizes:
        raise PtxError(f"parameters of {[size for _, size in layout]} bytes: must be {sizes}")
    data = np.zeros(kernel.parameter_bytes, np.uint8)
    for (recorded, size), (_, offset, _) in zip(layout, kernel.parameters, strict=True):
        data[offset : offset + size] = case.parameters[recorded : recorded + size]
    return data


def replay(case: Case, *, only_check: bool = False) -> Outcome:
    """Run a recorded launch, and compare each byte of each allocation.

    With ``only_check``, the kernel is compiled, which finds what is not supported, and not run.
    """
    launch = case.launch
    try:
        kernel = Module(case.text).kernel(launch["kernel"])
        if only_check:
            return Outcome(True, f"{case.name}: supported, {len(kernel.steps)} instructions")
        memory = GlobalMemory([(address, before) for address, before, _ in case.allocations])
        cluster = launch["cluster"] if any(launch["cluster"]) else None
        state = execute(
            kernel,
            launch["grid"],
            launch["block"],
            cluster,
            launch["dynamic_smem"],
            _parameters(case, kernel),
            memory,
        )
    except UnsupportedError as error:
        return Outcome(False, f"{case.name}: not supported\n  " + str(error).replace("\n", "\n  "))
    except PtxError as error:
        return Outcome(False, f"{case.name}: {error}")
    differences = [
        _difference(allocation, address, memory.at(address, after.size), after)
        for allocation, (address, _, after) in zip(
            launch["allocations"], case.allocations, strict=True
        )
    ]
    differences = [text for text in differences if text]
    if differences:
        return Outcome(False, f"{case.name}: " + "; ".join(differences))
    size = sum(after.size for *_, after in case.allocations)
    return Outcome(
        True, f"{case.name}: equal, {size} bytes, {state.instructions} warp instructions"
    )


def paths_of(places: Sequence[str], limit: int | None = None) -> list[Path]:
    """Return the cases that are named: files, with or without suffix, or folders of cases."""
    paths: list[Path] = []
    for place in places:
        path = Path(place)
        paths.extend(sorted(path.glob("*.npz")) if path.is_dir() else [path])
    return paths[:limit]


def replay_all(places: Sequence[str], *, only_check: bool = False, limit: int | None = None) -> int:
    """Replay cases, print a line for each and the sum; return the exit status, 1 if one failed."""
    passed = failed = 0
    for path in paths_of(places, limit):
        try:
            outcome = replay(Case.read(path), only_check=only_check)
        except PtxError as error:
            outcome = Outcome(False, str(error))
        print(outcome.line, flush=True)
        passed, failed = passed + outcome.passed, failed + (not outcome.passed)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0
