"""Command ``open-tma``: tensor maps, the RTL as Verilog, and kernels on the simulated RTL."""

import argparse
import sys
from collections.abc import Callable, Sequence

from open_tma.installation import MissingPackageError, version

PROG = "open-tma"

Main = Callable[..., int]


def maps() -> Main:
    """Return the command line of the golden model."""
    from golden.__main__ import main

    return main


def kernels() -> Main:
    """Return the command line of the behavioural SM."""
    from sim_tb.__main__ import main

    return main


def verilog() -> Main:
    """Return the command line that writes Verilog."""
    from hw.flow.verilog import main

    return lambda arguments, prog: main(arguments[1:], f"{prog} {arguments[0]}")


COMMANDS: dict[str, tuple[Callable[[], Main], str]] = {
    "explain": (maps, "print the fields of a tensor map, and whether it is legal"),
    "draw": (maps, "draw a load: its box, its layout in shared memory, bank conflicts"),
    "lint": (maps, "print errors, warnings and notes about tensor maps"),
    "errors": (maps, "print the table of error and warning codes"),
    "forms": (maps, "print the table of PTX's forms: golden model, RTL, recorded on silicon"),
    "verilog": (verilog, "write the unit as Verilog, and its ports as JSON"),
    "list": (kernels, "list the kernels and their options"),
    "run": (kernels, "run a kernel on the behavioural SM and the RTL, and check its result"),
    "sweep": (kernels, "run a kernel for each combination of option values"),
    "ptx": (kernels, "run recorded launches of PTX kernels, and compare memory with the GPU's"),
    "trace": (kernels, "turn event records of a unit into a trace for Perfetto"),
}
"""Function that imports the command line of each command, and what the command does. It is imported
late, because a user of the golden model need not have a simulator."""


def parser() -> argparse.ArgumentParser:
    """Return a parser of the first argument; the rest is parsed by the command."""
    width = max(map(len, COMMANDS))
    made = argparse.ArgumentParser(
        prog=PROG,
        description="Model of Hopper's Tensor Memory Accelerator.",
        epilog="\n".join(
            [
                "commands:",
                *(f"  {name:{width}}  {text}" for name, (_, text) in COMMANDS.items()),
                f"\n{PROG} COMMAND --help describes the options of a command.",
            ]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"{PROG} {version()}")
    made.add_argument("command", metavar="COMMAND", choices=COMMANDS, help="see below")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status, or 2 if packages for it are missing."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["version"]:
        given = ["--version"]
    command = parser().parse_args(given[:1]).command
    try:
        return COMMANDS[command][0]()(given, prog=PROG)
    except MissingPackageError as missing:
        print(f"{PROG} {command}: {missing}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
