"""Verilog of one commit by several Pythons: ``python -m tests.hw.flow.reproduce`` compares it.

Another Python gets an environment of its own, with the pinned packages of the RTL from their index.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hw.flow.cache import ROOT
from hw.params import PRESETS
from tests.docs.licences import parts
from tests.pins import pinned

OLDEST = 3, 11
"""First Python that the project supports."""


def other_pythons() -> dict[str, Path]:
    """Return supported Pythons of this machine by version, other minor versions first.

    They are those on the path and those of pyenv, without the one that runs this.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders = [*map(str, sorted(pyenv.glob("versions/*/bin"))), os.environ["PATH"]]
    command = [sys.executable, "-m", "uv", "python", "list", "--only-installed", "--no-config"]
    output = subprocess.run(
        [*command, "--output-format", "json"],
        cwd="/",
        env=os.environ | {"PATH": os.pathsep.join(folders)},
        capture_output=True,
        check=True,
    ).stdout
    found = {}
    for entry in json.loads(output):
        numbers = tuple(entry["version_parts"][part] for part in ("major", "minor", "patch"))
        if entry["implementation"] == "cpython" and OLDEST <= numbers != sys.version_info[:3]:
            found.setdefault(numbers, Path(entry["path"]))
    order = sorted(found, key=lambda numbers: (numbers[1] != sys.version_info[1], numbers))
    return {".".join(map(str, numbers)): found[numbers] for numbers in reversed(order)}


def environment(python: Path, directory: Path) -> Path:
    """Make a virtual environment with the pinned packages of the RTL; return its Python."""
    file = directory / "pins.txt"
    pins_of = pinned()
    wanted = [pins_of[name] for name, part in parts().items() if part in {"", "[plots]", "[rtl]"}]
    lines = (
        " ".join([f"{pin.name}=={pin.version}", *(f"--hash=sha256:{text}" for text in pin.hashes)])
        for pin in wanted
    )
    directory.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines))
    subprocess.run([python, "-m", "venv", directory / "environment"], check=True)
    made = directory / "environment" / "bin" / "python"
    options = "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"
    subprocess.run([made, "-m", "pip", "install", *options, "--requirement", file], check=True)
    return made


def digests(python: Path | str, preset: str, seed: int = 0) -> dict[str, str]:
    """Return the SHA-256 of each file that ``hw.verilog`` writes for a preset.

    Parameters
    ----------
    python : Path or str
        Interpreter that has the packages of the RTL.
    preset : str
        Name of the preset.
    seed : int
        Seed of the hashes of strings.
    """
    variables = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONDONTWRITEBYTECODE": "1"}
    with TemporaryDirectory() as directory:
        command = [python, "-m", "hw.verilog", "--preset", preset, "--out", directory]
        subprocess.run(command, cwd=ROOT, env=variables, stdout=subprocess.DEVNULL, check=True)
        files = sorted(Path(directory).iterdir())
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the SHA-256 of each preset's files, and those that differ between Pythons."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.hw.flow.reproduce", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("presets", nargs="*", help=f"presets; all by default: {', '.join(PRESETS)}")
    chosen = parser.parse_args(arguments).presets or [*PRESETS]
    if unknown := {*chosen} - PRESETS.keys():
        parser.error(f"unknown presets: {', '.join(sorted(unknown))}")
    others = other_pythons()
    if not others:
        parser.error(MISSING)
    status = 0
    with TemporaryDirectory() as directory:
        made = {name: environment(python, Path(directory, name)) for name, python in others.items()}
        here = ".".join(map(str, sys.version_info[:3]))
        print(f"Python {here} and {', '.join(made)}")
        for preset in chosen:
            first = digests(sys.executable, preset)
            for file, digest in first.items():
                print(f"{digest}  {preset}/{file}", flush=True)
            for seed, (name, python) in enumerate(made.items(), 1):
                if (other := digests(python, preset, seed)) != first:
                    names = {file for file, _ in other.items() ^ first.items()}
                    print(f"{preset}: Python {name} differs: {', '.join(sorted(names))}")
                    status = 1
    return status


MISSING = (
    "there is no second Python to compare with: install another version, 3.11 or newer, such as "
    "Debian's python3, or one of pyenv"
)

if __name__ == "__main__":
    sys.exit(main())
