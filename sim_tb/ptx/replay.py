"""Recorded launches: memory before and after a kernel on a GPU, run again and compared exactly."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from hw.params import PRESETS, TmaParams
from sim_tb.ptx.errors import PtxError, UnsupportedError
from sim_tb.ptx.kernel import Kernel, Kernels
from sim_tb.ptx.launch import Launch, Result, run_on_golden, run_on_unit
from sim_tb.simulator.runner import SimulationError
from sim_tb.sm.record import Setting

_FIELDS = frozenset(
    ("kernel", "grid", "block", "cluster", "dynamic_smem", "param_layout", "allocations")
)
"""Keys of the JSON file of a recorded launch."""


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
            if missing := _FIELDS - launch.keys():
                raise KeyError(f"no {', '.join(sorted(missing))}")
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


def launch_of(case: Case, sms: int = 0, *, sanitize: bool = False) -> Launch:
    """Return the launch of a case.

    Raises
    ------
    PtxError
        If the PTX is broken or not supported, or the case does not fit it.
    """
    launch = case.launch
    kernel = Kernels(case.text).kernel(launch["kernel"])
    made = Launch(
        text=case.text,
        entry=launch["kernel"],
        grid=launch["grid"],
        block=launch["block"],
        cluster=launch["cluster"] if any(launch["cluster"]) else None,
        smem=launch["dynamic_smem"],
        parameters=_parameters(case, kernel),
        allocations=[(address, before) for address, before, _ in case.allocations],
        sms=max(sms, int(np.prod([max(1, each) for each in launch["cluster"]]))),
        sanitize=sanitize,
    )
    made.state(kernel)
    return made


def compared(case: Case, result: Result) -> Outcome:
    """Compare each byte of each allocation."""
    if result.error is not None:
        return Outcome(False, f"{case.name}: {result.error}")
    differences = [
        _difference(allocation, address, got, after)
        for allocation, (address, _, after), got in zip(
            case.launch["allocations"], case.allocations, result.allocations, strict=True
        )
    ]
    differences = [text for text in differences if text]
    if differences:
        return Outcome(False, f"{case.name}: " + "; ".join(differences))
    size = sum(after.size for *_, after in case.allocations)
    return Outcome(
        True,
        f"{case.name}: equal, {size} bytes; {result.instructions} warp instructions, "
        f"{result.cycles} clocks, {result.seconds:.1f} s",
    )


def refused(name: str, error: PtxError) -> Outcome:
    """Return the outcome of a case that cannot be run."""
    if isinstance(error, UnsupportedError):
        return Outcome(False, f"{name}: not supported\n  " + str(error).replace("\n", "\n  "))
    return Outcome(False, f"{name}: {error}")


def check(case: Case) -> Outcome:
    """Compile a case, which finds what is not supported, without running it."""
    try:
        kernel = Kernels(case.text).kernel(case.launch["kernel"])
    except PtxError as error:
        return refused(case.name, error)
    return Outcome(True, f"{case.name}: supported, {len(kernel.steps)} instructions")


def replay_on_golden(case: Case, sms: int = 0, *, sanitize: bool = False) -> Outcome:
    """Run a case with the golden model as engine, and compare."""
    try:
        launch = launch_of(case, sms, sanitize=sanitize)
        kernel = Kernels(launch.text).kernel(launch.entry)
        return compared(case, run_on_golden(kernel, launch))
    except PtxError as error:
        return refused(case.name, error)


def replay_on_unit(
    cases: Sequence[Case],
    setting: Setting,
    sms: int = 0,
    params: TmaParams = PRESETS["default"],
    *,
    sanitize: bool = False,
) -> Iterator[Outcome]:
    """Run cases through the simulated unit, and compare; those that need the same unit together."""
    launches: list[tuple[Case, Launch]] = []
    for case in cases:
        try:
            launches.append((case, launch_of(case, sms, sanitize=sanitize)))
        except PtxError as error:
            yield refused(case.name, error)
    launches.sort(key=lambda pair: pair[1].ctas)
    results = run_on_unit([launch for _, launch in launches], setting, params)
    done = 0
    try:
        for (case, _), result in zip(launches, results, strict=True):
            done += 1
            yield compared(case, result)
    except SimulationError as error:
        for case, _ in launches[done:]:
            yield Outcome(False, f"{case.name}: {error}")


def paths_of(places: Sequence[str], limit: int | None = None) -> list[Path]:
    """Return the cases that are named: files, with or without suffix, or folders of cases."""
    paths: list[Path] = []
    for place in places:
        path = Path(place)
        paths.extend(sorted(path.glob("*.npz")) if path.is_dir() else [path])
    return paths[:limit]


def outcomes(
    places: Sequence[str],
    *,
    only_check: bool = False,
    limit: int | None = None,
    engine: str = "unit",
    setting: Setting | None = None,
    sms: int = 0,
    sanitize: bool = False,
) -> Iterator[Outcome]:
    """Yield the outcome of each case, as soon as it is known."""
    cases = []
    for path in paths_of(places, limit):
        try:
            cases.append(Case.read(path))
        except PtxError as error:
            yield Outcome(False, str(error))
    if only_check:
        yield from map(check, cases)
    elif engine == "golden":
        yield from (replay_on_golden(case, sms, sanitize=sanitize) for case in cases)
    else:
        yield from replay_on_unit(cases, setting or Setting(), sms, sanitize=sanitize)


def replay_all(found: Iterable[Outcome]) -> int:
    """Print the line of each outcome and the sum; return the exit status, 1 if one failed."""
    passed = failed = 0
    for outcome in found:
        print(outcome.line, flush=True)
        passed, failed = passed + outcome.passed, failed + (not outcome.passed)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0
