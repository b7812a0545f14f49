"""Command line of the golden model: maps, a drawn load, tables of errors and of PTX's forms."""

import argparse
import errno
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from golden.arch import Arch
from golden.capture import MAX_BYTES, SIZES, CaptureError, maps_of
from golden.descriptor import Descriptor
from golden.enums import DataType, Interleave
from golden.errors import errors_table
from golden.explain import explain
from golden.lint import Finding, Severity, lint, load_mode
from golden.request import Load
from golden.tensor_map import TensorMap
from open_tma.installation import MissingPackageError, python

PROG = f"{python()} -m golden"
"""Name of the command in its messages."""

MAP_HELP = (
    "files that hold a CUtensorMap as bytes, as .npy, or as a debugger or dump tool prints it "
    "(gdb, lldb, hexdump, xxd, od); - for standard input; or such text itself. The first 64 bytes "
    "of a map suffice"
)
JSON_HELP = "JSON of the arguments of cuTensorMapEncodeTiled, Im2col or Im2colWide, by name"


def integers(text: str) -> tuple[int, ...]:
    """Return the numbers in a text such as ``1,2``."""
    return tuple(int(item, 0) for item in text.split(","))


def arch_of(options: argparse.Namespace) -> Arch:
    """Return the architecture that ``--arch`` names."""
    return Arch.named(options.arch)


def contents_of(source: str) -> bytes | None:
    """Return the contents of a file, or of standard input for ``-``; None if there is no such file.

    Raises
    ------
    ValueError
        If the file exists but cannot be read.
    """
    try:
        if source == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with Path(source).open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except IsADirectoryError:
        if not source:  # the empty path is the current folder
            return None
        raise ValueError(f"{source}: is a folder: must be a file with a tensor map") from None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            return None
        raise ValueError(f"{source}: {error.strerror}") from None


def read_sources(arguments: Sequence[str]) -> list[tuple[str, bytes]]:
    """Return name and contents of each source of ``MAP``: files, or one text without a name.

    Raises
    ------
    ValueError
        If a file is empty or cannot be read, or if only some arguments are files.
    """
    contents = [(argument, contents_of(argument)) for argument in arguments]
    files = [(name, data) for name, data in contents if data is not None]
    missing = [name for name, data in contents if data is None]
    if files and missing:
        raise ValueError(f"{missing[0]}: no such file")
    for name, data in files:
        if not data.strip():
            raise ValueError(f"{name}: the file is empty: must be a tensor map of {SIZES}")
    text = " ".join(arguments)
    if not text.strip():
        raise ValueError("MAP is empty: must be the name of a file, or hexadecimal text")
    return files or [("", text.encode())]


def named_maps(name: str, data: bytes) -> list[bytes]:
    """Return the maps of a source; ``name`` begins the message of an error.

    Raises
    ------
    CaptureError
        If the source has no maps.
    """
    try:
        return maps_of(data)
    except CaptureError as error:
        text = f"{name}: {error}" if name else f"{error}, or the name of a file"
        raise CaptureError(text) from None


def label_of(name: str, number: int, count: int) -> str:
    """Return a label of one of ``count`` maps of a source; empty for the only map of a text."""
    number_text = f"[{number}]" if count > 1 else ""
    return f"{name}{number_text}" if name else number_text and f"map {number}"


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
    """Print an explanation of each map; return 1 if the encoder does not write one of them."""
    arch = arch_of(options)
    maps = [
        (label_of(name, number, len(found)), data)
        for name, contents in read_sources(options.map)
        for found in [named_maps(name, contents)]
        for number, data in enumerate(found, 1)
    ]
    is_illegal = False
    for label, data in maps:
        if len(maps) > 1:
            print(f"== {label}")
        explanation = explain(data, arch)
        print(explanation)
        is_illegal |= explanation.error is not None
    return 1 if is_illegal else 0


def run_draw(options: argparse.Namespace) -> int:
    """Write a picture of a load; return 0."""
    from golden.draw import check_format, draw, save  # late: importing Matplotlib takes long

    if options.map and options.dtype:
        raise ValueError(f"--dtype {options.dtype}: must not be given together with MAP")
    if options.map:
        maps = [
            data
            for name, contents in read_sources(options.map)
            for data in named_maps(name, contents)
        ]
        if len(maps) > 1:
            raise ValueError(f"{len(maps)} tensor maps: MAP must be one")
        data = maps[0]
    else:
        data = build_map(options).encode()
    tensor_map = Descriptor.from_bytes(data)
    request = Load(
        tensor_map,
        options.coords,
        load_mode(tensor_map),
        im2col_offsets=options.offsets,
        smem_address=options.smem_address,
    )
    check_format(options.out)
    save(draw(request, arch_of(options)), options.out)
    print(options.out)
    return 0


def linted_items(name: str, contents: bytes) -> list[bytes | Mapping[str, Any]]:
    """Return the maps of a source, or the arguments of encoders if the source is JSON.

    Raises
    ------
    ValueError
        If the source is neither.
    """
    if contents.lstrip()[:1] not in (b"{", b"[") or b'"' not in contents:
        return list(named_maps(name, contents))
    where = f"{name}: " if name else ""
    try:
        items = json.loads(contents)
    except ValueError as error:
        raise ValueError(f"{where}not JSON: {error}") from None
    items = items if isinstance(items, list) else [items]
    if not items or not all(isinstance(item, dict) for item in items):
        limit = "must be the arguments of an encoder by name, or a list of them"
        raise ValueError(f"{where}{limit}")
    return items


def run_lint(options: argparse.Namespace) -> int:
    """Print the findings about each map; return 1 if one is as severe as ``--fail-on``."""
    arch = arch_of(options)
    reports: list[tuple[str, list[Finding]]] = []
    for name, contents in read_sources(options.map):
        items = linted_items(name, contents)
        for number, item in enumerate(items, 1):
            label = label_of(name, number, len(items))
            try:
                reports.append((label, lint(item, arch)))
            except ValueError as error:
                raise ValueError(f"{label}: {error}" if label else str(error)) from None
    findings = [finding for _, found in reports for finding in found]
    if options.json:
        print(json.dumps({"maps": [report(*item) for item in reports]}, indent=1))
    else:
        for label, found in reports:
            for finding in found:
                print(f"{label}: {finding}" if label else finding)
        counts = Counter(finding.severity for finding in findings)
        print(
            ", ".join(
                f"{counts[kind]} {kind.value}{'s' * (counts[kind] != 1)}" for kind in Severity
            )
        )
    least = Severity(options.fail_on)
    return 1 if any(finding.severity.is_at_least(least) for finding in findings) else 0


def report(label: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings about a map for JSON."""
    return {
        "map": label,
        "findings": [
            {
                "severity": finding.severity.value,
                "code": finding.code.name,
                "parameter": finding.parameter,
                "message": finding.message,
            }
            for finding in findings
        ],
    }


def run_errors(options: argparse.Namespace) -> int:
    """Write the error table to a file, or print it; return 0."""
    return write(options.file, errors_table())


def run_forms(options: argparse.Namespace) -> int:
    """Write the table of the forms of PTX to a file, or print it; return 0."""
    from golden.form_list import GROUPS  # late: no other command needs it
    from golden.forms import forms_page

    return write(options.file, forms_page(GROUPS))


def write(path: Path | None, text: str) -> int:
    """Write a text to a file, or print it; return 0."""
    if path:
        path.write_text(text)
    else:
        print(text, end="")
    return 0


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, purpose: str, example: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=purpose,
            description=f"{purpose[0].upper()}{purpose[1:]}.",
            epilog=f"Example: {prog} {name} {example}",
        )

    def add_arch(sub: argparse.ArgumentParser) -> None:
        names = [item.name.lower() for item in Arch.members()]
        text = "architecture whose features the map may use (default: %(default)s)"
        sub.add_argument("--arch", choices=names, default=names[0], help=text)

    sub = command(
        "explain", "print the fields of a tensor map, and whether it is legal", "captured_map.bin"
    )
    sub.add_argument("map", nargs="+", metavar="MAP", help=MAP_HELP)
    add_arch(sub)
    sub.set_defaults(run=run_explain)

    sub = command(
        "lint",
        "check tensor maps: errors, warnings about speed, notes",
        "captured_map.bin arguments.json",
    )
    sub.add_argument("map", nargs="+", metavar="MAP", help=f"{MAP_HELP}; or {JSON_HELP}")
    sub.add_argument("--json", action="store_true", help="print the findings as JSON")
    sub.add_argument(
        "--fail-on",
        choices=[severity.value for severity in Severity],
        default=Severity.ERROR.value,
        help="least severity with which the exit status is 1 (default: %(default)s); it is 2 if "
        "an argument or a file is wrong, and otherwise 0",
    )
    add_arch(sub)
    sub.set_defaults(run=run_lint)

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
    sub.add_argument(
        "-o",
        "--out",
        type=Path,
        default=Path("box.png"),
        help="file to write, .png or .svg (default: %(default)s)",
    )
    sub.set_defaults(run=run_draw, offsets=())

    for name, purpose, page, run in (
        ("errors", "write the table of error and warning codes", "docs/errors.md", run_errors),
        ("forms", "write the table of PTX's forms", "docs/ptx_coverage.md", run_forms),
    ):
        sub = command(name, purpose, page)
        sub.add_argument(
            "file",
            nargs="?",
            type=Path,
            metavar="FILE",
            help="file to write (default: print the table)",
        )
        sub.set_defaults(run=run)
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


def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run a command; return 0, 1 if a map is illegal, or 2 if the command failed.

    Parameters
    ----------
    arguments : sequence of str, optional
        Arguments of the command line; by default those of the process.
    prog : str
        Name of the command in its messages.
    """
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser(prog).parse_args(_join_negative_values(given))
    try:
        status: int = options.run(options)
    except (OSError, ValueError, MissingPackageError) as error:
        print(f"{prog.split()[-1]} {options.command}: {error}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
