"""Bits of registers that are constant: no simulation can have an edge of them.

Yosys flattens the unit and propagates constants through its logic and its registers until nothing
changes. The contents at power-up do not count: a register without reset may have any, up to the
first time that it is loaded.
"""

import json
from pathlib import Path

from hw.flow import yosys
from hw.flow.cache import cached, digest, simulated
from hw.flow.design import Design
from hw.flow.verilog import MODULE
from hw.params import TmaParams

SCRIPT = (
    "read_rtlil unit.il; hierarchy -auto-top; proc; chformal -remove; flatten; "
    "setattr -unset init w:*; opt -full; write_json unit.json"
)


def constant_bits(params: TmaParams) -> frozenset[str]:
    """Return the names of the constant bits of a unit, such as ``tma.gnic.tags.level[3]``.

    Parameters
    ----------
    params : TmaParams
        Parameters of the unit.

    Raises
    ------
    ToolError
        If Yosys fails.
    """
    design = Design(simulated(params), MODULE).rtlil()
    directory = cached(
        "constant_bits", digest([design, SCRIPT]), lambda folder: _find(design, folder)
    )
    return frozenset((directory / "constants.txt").read_text().splitlines())


def _find(design: str, directory: Path) -> None:
    """Write the file of constant bits of a design in RTLIL."""
    (directory / "unit.il").write_text(design)
    yosys.run(SCRIPT, directory)
    netlist = directory / "unit.json"
    nets = json.loads(netlist.read_text())["modules"][MODULE]["netnames"]
    names = (
        f"{MODULE}.{name}[{number}]\n"
        for name, net in nets.items()
        for number, bit in enumerate(net["bits"])
        if isinstance(bit, str)
    )
    (directory / "constants.txt").write_text("".join(names))
    netlist.unlink()
