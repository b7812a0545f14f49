"""Replays a GEMM's loads and stores on the unit in Icarus Verilog, from X at power-up.

The unit starts with X in all registers and memories. From the end of reset on, an output with an X
ends the simulation. The data of all stages and of C is compared with that of the golden model.
"""

import sys
from collections.abc import Sequence
from dataclasses import fields

from hw.flow.cache import CacheError, created, generated, run_folder
from hw.params import PRESETS
from open_tma.installation import python
from sim_tb.command_line import Parser, entry_point
from sim_tb.four_state.icarus import IcarusError, replay, require_icarus
from sim_tb.four_state.program import gemm_program
from sim_tb.kernels.gemm import Gemm
from sim_tb.sm import launch
from sim_tb.sm.record import Setting
from sim_tb.testbench.interface import Interface

PROG = f"{python()} -m sim_tb.four_state"
"""Name of the command in its messages."""

SIZES = {"m": 136, "n": 40, "k": 72}
"""Default extents: both matrices end within a tile."""

OPTIONS = (*SIZES, "stages", "a", "b")
"""Options of the kernel that this command has, too."""


@entry_point
def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command line; see ``--help``."""
    parser = Parser(prog=prog, description=__doc__)
    for item in fields(Gemm):
        if item.name in OPTIONS:
            kind = str if item.name in ("a", "b") else int
            text = item.metadata["help"].partition(" [")[0]
            default = SIZES.get(item.name, item.default)
            parser.add_argument(
                f"--{item.name}", type=kind, help=f"{text} [{default}]" if default else text
            )
    options = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value}
    sizes = {} if options.keys() & {"a", "b"} else SIZES
    gemm = Gemm(**{**sizes, **options})
    try:
        launch.validate(gemm, Setting())
    except ValueError as error:
        parser.error(str(error))
    try:
        require_icarus()
        rtl = generated(PRESETS["default"])
        program = gemm_program(gemm, Interface(rtl / "tma.json"))
        print(
            f"gemm, M = {gemm.rows}, N = {gemm.columns}, K = {gemm.depth}, in Icarus Verilog, "
            f"which takes half a minute or more: {program.loads} loads, {program.stores} stores",
            flush=True,
        )
        outcome = replay(program, rtl, created(run_folder() / "four_state"))
    except (CacheError, IcarusError) as error:
        print(error, file=sys.stderr)
        return 1
    print(
        f"{outcome.clocks:,} clocks, {outcome.lines_read:,} lines read, "
        f"{outcome.lines_written:,} lines written\n"
        "No output has an X after reset, and all bytes are those of the golden model."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
