"""Tools of the golden model: explain a tensor map, draw a load, write the table of errors."""

import argparse
import errno
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from golden.descriptor import Descriptor
from golden.enums import Arch, DataType, Interleave
from golden.errors import errors_table
from golden.explain import explain, file_bytes, load_mode, map_bytes
from golden.request import Load
from golden.tensor_map import TensorMap

MAP_HELP = (
    "file with the bytes of a CUtensorMap or with hexadecimal text, or - for standard input, or "
    "the text itself: bytes, or words of 32 or 64 bits that each begin with 0x; 64 bytes suffice"
)


def integers(text: str) -> tuple[int, ...]:
    """``1,2`` as numbers."""
    return tuple(int(item, 0) for item in text.split(","))


def arch_of(options: argparse.Namespace) -> Arch:
    """The architecture that was asked for."""
    return Arch[options.arch.upper()]


def read_map(source: str) -> bytes:
    """The bytes of a tensor map that the command line names.

    Raises
    ------
    OSError, ValueError
        If there is no such file and it is not hexadecimal either.
    """
    if source == "-":
        return file_bytes(sys.stdin.buffer.read())
    try:
        return file_bytes(Path(source).read_bytes())
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG):
            raise
    try:
        return map_bytes(source)
    except ValueError as error:
        raise ValueError(f"{error}, or the name of a file") from None


def dense(kind: DataType, interleave: Interleave, dim: Sequence[int]) -> list[int]:
    """Strides of a tensor without gaps but those that alignment asks for."""
    unit = 16 * interleave
    step = dim[0] * unit or -(-dim[0] * kind.bits // (8 * 16)) * 16
    strides = []
    for extent in dim[1:]:
        strides.append(step)
        step *= extent
    return strides


def build_map(options: argparse.Namespace) -> TensorMap:
    """The tensor map that the options describe.

    Raises
    ------
    ValueError
        If something is missing, or wrong.
    """
    im2col = options.box is None and (options.channels or options.pixels)
    for name in ("dtype", "dim", *(("channels", "pixels") if im2col else ("box",))):
        if getattr(options, name) is None:
            raise ValueError(f"no map and no --{name}: --dtype, --dim and --box describe a map")
    kind, layout = DataType.member(options.dtype), Interleave.member(options.interleave)
    strides = options.strides or dense(kind, layout, options.dim)
    common = {
        "element_strides": options.element_strides,
        "interleave": layout,
        "swizzle": options.swizzle,
        "oob_fill": options.oob_fill,
        "arch": arch_of(options),
    }
    if not im2col:
        return TensorMap.tiled(kind, 0, options.dim, strides, options.box, **common)
    zeros = (0,) * (len(options.dim) - 2)
    lower, upper = options.lower_corner or zeros, options.upper_corner or zeros
    sizes = options.channels, options.pixels
    return TensorMap.im2col(kind, 0, options.dim, strides, lower, upper, *sizes, **common)


def run_explain(options: argparse.Namespace) -> int:
    """Print an explanation; 1 if the encoder would not have written the map."""
    explanation = explain(read_map(" ".join(options.map)), arch_of(options))
    Console(highlight=False).print(explanation)
    return 1 if explanation.error else 0


def run_draw(options: argparse.Namespace) -> int:
    """Write a picture of a load."""
    from golden.draw import draw  # here, as Matplotlib takes its time

    if options.map and options.dtype:
        raise ValueError(f"--dtype {options.dtype}: not with a map")
    data = read_map(" ".join(options.map)) if options.map else build_map(options).encode()
    tensor_map = Descriptor.from_bytes(data)
    request = Load(
        tensor_map,
        options.coords,
        load_mode(tensor_map),
        im2col_offsets=options.offsets,
        smem_address=options.smem_address,
    )
    figure = draw(request, arch_of(options))
    figure.savefig(options.out, format="png", metadata={"Software": None})
    print(options.out)
    return 0


def run_errors(options: argparse.Namespace) -> int:
    """Write the table of errors, or print it."""
    if options.file:
        options.file.write_text(errors_table())
    else:
        print(errors_table(), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m golden", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, what: str, example: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=what,
            description=f"{what[0].upper()}{what[1:]}.",
            epilog=f"Example: python -m golden {name} {example}",
        )

    def takes_arch(sub: argparse.ArgumentParser) -> None:
        known = [item.name.lower() for item in Arch]
        what = "what may be in the map (default: %(default)s)"
        sub.add_argument("--arch", choices=known, default=known[0], help=what)

    sub = command(
        "explain", "print what a tensor map says, and whether it is legal", "captured_map.bin"
    )
    sub.add_argument("map", nargs="+", metavar="MAP", help=MAP_HELP)
    takes_arch(sub)
    sub.set_defaults(run=run_explain)

    sub = command(
        "draw",
        "draw a load: its box, its layout in shared memory and the bank conflicts of a reader",
        "--dtype bf16 --dim 256,256 --box 64,64 --swizzle 128B --coords 64,0 -o box.png",
    )
    sub.add_argument("map", nargs="*", metavar="MAP", help=f"{MAP_HELP}; or use --dtype and so on")
    start = sub.add_argument_group("the load", "all innermost first")
    build = sub.add_argument_group("the map, if none is given", "all innermost first")
    for group, name, what in (
        (start, "coords", "start of the box: 64,0"),
        (start, "offsets", "of im2col, W first: 1,1"),
        (build, "dim", "elements of the tensor: 256,256"),
        (build, "box", "elements of the box: 64,64"),
        (build, "strides", "bytes of dimension 1 and up; dense, rows padded to 16, if not given"),
        (build, "element-strides", "1 if not given"),
        (build, "lower-corner", "of im2col, W first; 0 if not given"),
        (build, "upper-corner", "of im2col, W first; 0 if not given"),
    ):
        group.add_argument(
            f"--{name}", type=integers, metavar="N,N", help=what, required=name == "coords"
        )
    start.add_argument(
        "--smem-address",
        type=lambda text: int(text, 0),
        default=0,
        metavar="BYTE",
        help="in the CTA's window, a multiple of 128 (default: %(default)s)",
    )
    build.add_argument("--dtype", metavar="TYPE", help="bf16, u8, tf32 and so on")
    build.add_argument("--channels", type=int, metavar="N", help="of im2col, per pixel")
    build.add_argument("--pixels", type=int, metavar="N", help="of im2col, per column")
    build.add_argument("--swizzle", default="none", help="none, 32B, 64B, 128B")
    build.add_argument("--interleave", default="none", help="none, 16B, 32B")
    build.add_argument("--oob-fill", default="zero", help="zero, nan")
    takes_arch(sub)
    sub.add_argument("-o", "--out", type=Path, default="box.png", help="default: %(default)s")
    sub.set_defaults(run=run_draw, offsets=())

    sub = command("errors", "write the table of errors and warnings", "docs/errors.md")
    sub.add_argument("file", nargs="?", type=Path, metavar="FILE", help="printed if not given")
    sub.set_defaults(run=run_errors)
    return parser


def _attached(arguments: Sequence[str]) -> list[str]:
    """``--coords -1,0`` as ``--coords=-1,0``, which ``argparse`` needs of negative numbers."""
    found: list[str] = []
    for argument in arguments:
        if found and found[-1].startswith("--") and re.fullmatch(r"-\d[-\d,]*", argument):
            found[-1] += f"={argument}"
        else:
            found.append(argument)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 1: the map is not legal, 2: something cannot be done."""
    options = _parser().parse_args(_attached(sys.argv[1:] if arguments is None else arguments))
    try:
        status: int = options.run(options)
    except (OSError, ValueError) as error:
        print(f"golden {options.command}: {error}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
