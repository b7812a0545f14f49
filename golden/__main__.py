"""Command line of the golden model: explain a tensor map, draw a load, write the error table."""

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
    "a file that holds a CUtensorMap as bytes or as hexadecimal text; - for standard input; or "
    "hexadecimal text: bytes, or words of 32 or 64 bits that each begin with 0x. 64 bytes suffice"
)


def integers(text: str) -> tuple[int, ...]:
    """Return the numbers in a text such as ``1,2``."""
    return tuple(int(item, 0) for item in text.split(","))


def arch_of(options: argparse.Namespace) -> Arch:
    """Return the architecture that ``--arch`` names."""
    return Arch[options.arch.upper()]


def read_map(source: str) -> bytes:
    """Return the bytes of the tensor map that ``MAP`` of the command line stands for.

    Raises
    ------
    OSError
        If a file of that name exists but cannot be read.
    ValueError
        If no file has that name and it is no hexadecimal text.
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


def dense_strides(kind: DataType, interleave: Interleave, dim: Sequence[int]) -> list[int]:
    """Return the strides of a tensor whose rows are padded to 16 bytes and otherwise dense."""
    slice_bytes = 16 * interleave
    stride = dim[0] * slice_bytes or -(-dim[0] * kind.bits // (8 * 16)) * 16
    strides = []
    for extent in dim[1:]:
        strides.append(stride)
        stride *= extent
    return strides


def build_map(options: argparse.Namespace) -> TensorMap:
    """Build the tensor map that the options describe.

    Raises
    ------
    ValueError
        If an option is missing or its value is illegal.
    """
    im2col = options.box is None and (options.channels or options.pixels)
    for name in ("dtype", "dim", *(("channels", "pixels") if im2col else ("box",))):
        if getattr(options, name) is None:
            raise ValueError(f"no map and no --{name}: give MAP, or --dtype, --dim and --box")
    kind, layout = DataType.member(options.dtype), Interleave.member(options.interleave)
    strides = options.strides or dense_strides(kind, layout, options.dim)
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
    """Print an explanation; return 1 if the driver's encoder does not write such a map."""
    explanation = explain(read_map(" ".join(options.map)), arch_of(options))
    Console(highlight=False).print(explanation)
    return 1 if explanation.error else 0


def run_draw(options: argparse.Namespace) -> int:
    """Write a picture of a load; return 0."""
    from golden.draw import draw  # late: importing Matplotlib takes long

    if options.map and options.dtype:
        raise ValueError(f"--dtype {options.dtype}: must not be given together with MAP")
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
    """Write the error table to a file, or print it; return 0."""
    if options.file:
        options.file.write_text(errors_table())
    else:
        print(errors_table(), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m golden", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, purpose: str, example: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=purpose,
            description=f"{purpose[0].upper()}{purpose[1:]}.",
            epilog=f"Example: python -m golden {name} {example}",
        )

    def add_arch(sub: argparse.ArgumentParser) -> None:
        names = [item.name.lower() for item in Arch]
        text = "architecture whose features the map may use (default: %(default)s)"
        sub.add_argument("--arch", choices=names, default=names[0], help=text)

    sub = command(
        "explain", "print the fields of a tensor map, and whether it is legal", "captured_map.bin"
    )
    sub.add_argument("map", nargs="+", metavar="MAP", help=MAP_HELP)
    add_arch(sub)
    sub.set_defaults(run=run_explain)

    sub = command(
        "draw",
        "draw a load: its box, its layout in shared memory, and a reader's bank conflicts",
        "--dtype bf16 --dim 256,256 --box 64,64 --swizzle 128B --coords 64,0 -o box.png",
    )
    sub.add_argument(
        "map",
        nargs="*",
        metavar="MAP",
        help=f"{MAP_HELP}; without MAP, --dtype and the options after it describe the map",
    )
    start = sub.add_argument_group("the load", "lists are innermost first")
    build = sub.add_argument_group("the map, without MAP", "lists are innermost first")
    for group, name, text in (
        (start, "coords", "start of the box, in elements: 64,0"),
        (start, "offsets", "im2col offsets, W first: 1,1"),
        (build, "dim", "elements of the tensor: 256,256"),
        (build, "box", "elements of the box: 64,64"),
        (build, "strides", "bytes, from dimension 1 (default: dense, rows padded to 16 bytes)"),
        (build, "element-strides", "steps of the box, in elements (default: 1)"),
        (build, "lower-corner", "corner of the im2col bounding box, W first (default: 0)"),
        (build, "upper-corner", "corner of the im2col bounding box, W first (default: 0)"),
    ):
        group.add_argument(
            f"--{name}", type=integers, metavar="N,N", help=text, required=name == "coords"
        )
    start.add_argument(
        "--smem-address",
        type=lambda text: int(text, 0),
        default=0,
        metavar="BYTE",
        help="byte offset in the CTA's shared memory, a multiple of 128 (default: %(default)s)",
    )
    build.add_argument("--dtype", metavar="TYPE", help="element type: bf16, u8, tf32, ...")
    build.add_argument("--channels", type=int, metavar="N", help="im2col channels per pixel")
    build.add_argument("--pixels", type=int, metavar="N", help="im2col pixels per column")
    build.add_argument("--swizzle", default="none", help="none, 32B, 64B, 128B")
    build.add_argument("--interleave", default="none", help="none, 16B, 32B")
    build.add_argument("--oob-fill", default="zero", help="zero, nan")
    add_arch(sub)
    sub.add_argument("-o", "--out", type=Path, default="box.png", help="default: %(default)s")
    sub.set_defaults(run=run_draw, offsets=())

    sub = command("errors", "write the table of error and warning codes", "docs/errors.md")
    sub.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="file to write (default: print the table)",
    )
    sub.set_defaults(run=run_errors)
    return parser


def _join_negative_values(arguments: Sequence[str]) -> list[str]:
    """Turn ``--coords -1,0`` into ``--coords=-1,0``: argparse takes ``-1,0`` for an option."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1].startswith("--") and re.fullmatch(r"-\d[-\d,]*", argument):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 0, 1 if the map is illegal, or 2 if the command failed."""
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(_join_negative_values(given))
    try:
        status: int = options.run(options)
    except (OSError, ValueError) as error:
        print(f"golden {options.command}: {error}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
