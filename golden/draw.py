"""Picture of a load: ``python -m golden draw``.

Its panels show the box in the tensor, the places of its pieces in shared memory, and the bank
conflicts of a reader. Shared memory serves 8 threads that read 16 bytes each in one wavefront if
they touch all 32 banks.
"""

from pathlib import Path
from typing import Any

from open_tma.installation import need

need(__name__, "plots")

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from golden.arch import Arch
from golden.banks import GROUPS, conflicts
from golden.enums import LINE, PIECE, AccessMode, OobFill, Swizzle
from golden.geometry import Operands
from golden.model import check, operands_of, plan_for
from golden.plan import Plan
from golden.request import Load

MAX_LINES = 32
"""Largest number of lines of shared memory in a panel."""

MAX_COLUMNS = 16
"""Largest number of columns in a panel."""

FORMATS: dict[str, dict[str, None]] = {".png": {"Software": None}, ".svg": {"Date": None}}
"""Formats of a picture by the suffix of its file, with the metadata that is left out."""

SIZE = (16, 10)
DPI = 120

Style = dict[str, Any]

BLUE, ORANGE, VERMILLION = "#0072B2", "#E69F00", "#D55E00"
INK, GREY, PALE = "#222222", "#666666", "#E6ECF2"
OUTSIDE: Style = {"facecolor": "#FFF3EB", "edgecolor": VERMILLION, "hatch": "////", "linewidth": 0}
TENSOR: Style = {"facecolor": PALE, "edgecolor": INK, "linewidth": 1.2}
WALK: Style = {"facecolor": "none", "edgecolor": BLUE, "linewidth": 1.6, "linestyle": (0, (4, 2))}
GAP: Style = {"facecolor": "#ECECEC", "edgecolor": "white", "linewidth": 0.8}
LABEL: Style = {"boxstyle": "round,pad=0.15", "facecolor": "white", "alpha": 0.85, "linewidth": 0}
FIRST: Style = {"facecolor": "none", "edgecolor": ORANGE, "linewidth": 2}

Colours = NDArray[np.float64]
"""Colours of the rows of a box, as RGBA: shape (rows, 4)."""


def draw(request: Load, arch: Arch = Arch.SM_90A) -> Figure:
    """Draw a load in three panels: tensor, shared memory, bank conflicts.

    Parameters
    ----------
    request : Load
        A legal load.
    arch : Arch
        Architecture whose features the load may use.

    Returns
    -------
    Figure
        The picture, for ``savefig``.

    Raises
    ------
    TmaError
        If the unit refuses the request.
    """
    check(request, arch=arch)
    plan = plan_for(request.tensor_map, request.mode, arch=arch)
    operands = operands_of(request)
    rows = plan.rows(request.w_halo)
    colours = matplotlib.colormaps["viridis"](np.linspace(0.08, 0.95, rows))
    figure = Figure(SIZE, dpi=DPI)
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(
        2, 2, left=0.06, right=0.98, top=0.825, bottom=0.12, wspace=0.18, hspace=0.52,
        height_ratios=(3, 2),
    )  # fmt: skip
    _draw_tensor(figure.add_subplot(grid[0, 0]), plan, operands, colours)
    _draw_lines(figure.add_subplot(grid[:, 1]), plan, operands, request.smem_address, colours)
    _draw_conflicts(figure.add_subplot(grid[1, 0]), plan, operands, request.smem_address)
    _draw_frame(figure, plan, operands, request)
    return figure


def check_format(path: Path) -> None:
    """Refuse a file whose name does not end in a format that `save` writes.

    Raises
    ------
    ValueError
        If the suffix is another.
    """
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path}: must end in {' or '.join(FORMATS)}")


def save(figure: Figure, path: Path) -> None:
    """Write a picture in the format that the suffix of ``path`` names; equal pictures, equal bytes.

    Raises
    ------
    ValueError
        If the suffix names no format.
    OSError
        If the file cannot be written.
    """
    check_format(path)
    suffix = path.suffix.lower()
    with matplotlib.rc_context({"svg.hashsalt": "golden"}):
        figure.savefig(path, format=suffix[1:], metadata=FORMATS[suffix])


def _draw_frame(figure: Figure, plan: Plan, operands: Operands, request: Load) -> None:
    """Draw title, subtitle and legend."""
    d = plan.descriptor
    if plan.mode.map_mode:
        inner = "one slice" if plan.interleaved else f"{plan.row_elements} channels"
        box = f"{plan.rows(operands.w_halo)} pixels of {inner}"
    else:
        box = f"box {' x '.join(map(str, d.box_dim[: d.rank]))}"
    offsets = f", offsets {operands.offsets}" if operands.offsets else ""
    layout = [] if d.interleave is None or not d.interleave else [d.interleave.name]
    swizzle = plan.swizzle.name if plan.swizzle else "no swizzle"
    names = ", ".join([plan.data_type.name, *layout, swizzle])
    tensor = " x ".join(map(str, d.global_dim[: d.rank]))
    start = ", ".join(map(str, operands.coords))
    title = f"{plan.mode.name} load of {box} at ({start}){offsets}"
    size = min(17, 1650 / len(title))
    figure.text(0.06, 0.955, title, fontsize=size, weight="bold", color=INK)
    subtitle = (
        f"Tensor {tensor}, innermost first: {names}.  {plan.bytes(operands.w_halo)} bytes to "
        f"shared memory at {request.smem_address:#x}, in rows of {plan.row_bytes} bytes"
    )
    subtitle += f", one every {plan.pitch}." if plan.pitch > plan.row_bytes else "."
    figure.text(0.06, 0.925, subtitle, fontsize=min(11, 1980 / len(subtitle)), color=GREY)
    fill = "NaN" if d.oob_fill is OobFill.NAN_REQUEST_ZERO_FMA else "zero"
    viridis = matplotlib.colormaps["viridis"]
    shades = tuple(Patch(facecolor=viridis(level)) for level in (0.1, 0.35, 0.6, 0.85))
    entries: dict[str, Any] = {
        "tensor": Patch(**TENSOR),
        "in the box, coloured by row": shades,
        f"outside the tensor: filled with {fill}": Patch(**OUTSIDE),
        "not written": Patch(**GAP),
    }
    if plan.row_bytes > PIECE:
        entries["piece 0 of each row"] = Patch(**FIRST)
    if plan.mode is AccessMode.IM2COL:
        note = ", moved by the offsets" if operands.offsets else ""
        entries[f"bounding box{note}"] = Patch(**WALK)
    figure.legend(
        entries.values(), entries.keys(), loc="lower left", bbox_to_anchor=(0.052, 0.012),
        ncols=len(entries), frameon=False, fontsize=10.5, handlelength=2, columnspacing=2,
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0)},
    )  # fmt: skip


def _titles(ax: Axes, title: str, subtitle: str) -> None:
    """Draw a title and a subtitle, one line above the axes."""
    place: Style = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom"}
    ax.annotate(title, (0, 1), (0, 43), fontsize=13, weight="bold", color=INK, **place)
    ax.annotate(subtitle, (0, 1), (0, 24), fontsize=10, color=GREY, **place)


def _plane(plan: Plan) -> tuple[int, int | None]:
    """Return the dimensions that the picture shows: the first two in which a box extends."""
    rank = plan.descriptor.rank
    if not plan.mode.map_mode:
        return 0, 1 if rank > 1 else None
    first = 0 if plan.interleaved else 1
    return first, first + 1 if rank > 3 else rank - 1


def _dimension_name(plan: Plan, dim: int) -> str:
    """Return the label of a dimension of the tensor."""
    if plan.mode.map_mode:
        rank, first = plan.descriptor.rank, 0 if plan.interleaved else 1
        if dim >= first + rank - 2:
            return "image" if dim == rank - 1 else "slice"
        return "WHD"[dim - first]
    units = f"slices of {plan.row_bytes} bytes" if plan.interleaved else "elements"
    return f"dimension {dim}" + (f", {units}" if dim == 0 else "")


def _view(low: int, high: int, first: int, last: int) -> tuple[float, float]:
    """Return the range of an axis: the box, and what lies within twice its size around it."""
    reach = max(2 * (high - low), 8)
    left, right = max(low - reach, min(low, first)), min(high + reach, max(high, last))
    pad = 0.05 * (right - left)
    return left - pad, right + pad


def _bounds(plan: Plan, operands: Operands, dim: int) -> tuple[int, int]:
    """Return first and end of im2col's bounding box in a dimension; else of the tensor."""
    d = plan.descriptor
    extent, j = d.global_dim[dim], dim - (0 if plan.interleaved else 1)
    if plan.mode is not AccessMode.IM2COL or dim == d.rank - 1:
        return 0, extent
    offset = operands.offsets[j] if operands.offsets else 0
    return d.lower_corner[j] + offset, extent + d.upper_corner[j] + offset


def _clipped(view: tuple[float, float], first: int, end: int) -> tuple[float, float]:
    """Return start and length of a range, without what is far outside of the view of an axis.

    Matplotlib does not draw edges that are too far outside.
    """
    margin = view[1] - view[0]
    low, high = max(first, view[0] - margin), min(end, view[1] + margin)
    return low, max(high - low, 0)


def _ends(plan: Plan, operands: Operands) -> str:
    """Return a text that says where the tensor lies, if the box is wholly outside; else nothing."""
    if plan.spread(0, operands).inside.any():
        return ""
    d = plan.descriptor
    positions = plan.positions(operands)
    parts = []
    for i in range(d.rank):
        low, high = int(positions[i].min()), int(positions[i].max())
        if i not in plan.bounded:
            high += plan.row_elements - 1
        name = "slices" if plan.interleaved and i == 0 else f"dimension {i}"
        if low >= d.global_dim[i]:
            parts.append(f"the tensor ends at {d.global_dim[i]} in {name}, the box starts at {low}")
        elif high < 0:
            parts.append(f"the tensor begins at 0 in {name}, the box ends at {high + 1}")
    return "the box is outside: " + "; ".join(parts or ["no row of it is in the tensor"])


def _draw_tensor(ax: Axes, plan: Plan, operands: Operands, colours: Colours) -> None:
    """Draw the box, or its pixels, in two dimensions of the tensor."""
    i, j = _plane(plan)
    positions = plan.positions(operands)
    hidden = [k for k in plan.bounded if k not in (i, j)]
    shown = (positions[hidden] == positions[hidden, :1]).all(axis=0)
    x, width = positions[i, shown], plan.row_elements if i == 0 else 1
    y = np.zeros_like(x) if j is None else positions[j, shown]
    extents = [1 if k is None else plan.descriptor.global_dim[k] for k in (i, j)]
    walk = [(0, 1) if k is None else _bounds(plan, operands, k) for k in (i, j)]
    views = [
        _view(int(at.min()), int(at.max()) + size, min(first, 0), max(last, extent))
        for at, size, (first, last), extent in zip((x, y), (width, 1), walk, extents, strict=True)
    ]
    ax.set_xlim(views[0])
    ax.set_ylim(views[1][::-1])
    (left, width_shown), (top, height_shown) = (
        _clipped(view, 0, extent) for view, extent in zip(views, extents, strict=True)
    )
    shape = (left, top), width_shown, height_shown
    tensor = ax.add_patch(Rectangle(*shape, **TENSOR))
    sides = ((0, 0), (width, 0), (width, 1), (0, 1))
    corners = list(np.stack([np.stack([x + dx, y + dy], -1) for dx, dy in sides], 1))
    ax.add_collection(PolyCollection(corners, **OUTSIDE))
    if plan.spread(0, operands).inside[shown].any():
        wide = min(_unit_size(ax)) > 4
        edges: Style = {"edgecolor": "white", "linewidth": 0.5} if wide else {"edgecolor": "face"}
        rows = PolyCollection(corners, facecolor=colours[shown], **edges)
        ax.add_collection(rows)
        rows.set_clip_path(tensor)
    ax.add_patch(Rectangle(*shape, **TENSOR | {"facecolor": "none"}))
    if plan.mode is AccessMode.IM2COL:
        (left, width_shown), (top, height_shown) = (
            _clipped(view, *bounds) for view, bounds in zip(views, walk, strict=True)
        )
        ax.add_patch(Rectangle((left, top), width_shown, height_shown, **WALK))
    if plan.mode.map_mode:
        _draw_numbers(ax, x, y)
    ax.set_xlabel(_dimension_name(plan, i))
    ax.set_ylabel("" if j is None else _dimension_name(plan, j))
    digits, y_digits = (max(len(str(int(end))) for end in view) for view in views)
    ax.yaxis.set_tick_params(labelsize=min(10, 64 / y_digits))
    for axis, ticks in ((ax.xaxis, min(9, 60 // digits)), (ax.yaxis, 9)):
        axis.set_major_locator(MaxNLocator(ticks, steps=(1, 2, 4, 8, 10), integer=True))
    ax.ticklabel_format(useOffset=False, style="plain")
    if j is None:
        ax.set_yticks([])
    ax.spines[:].set_visible(False)
    unit = "pixels, in order" if plan.mode.map_mode else "rows of the box"
    count = "all" if shown.all() else f"{x.size} of {shown.size}"
    hidden_start = ", ".join(f"{_dimension_name(plan, k)} = {positions[k, 0]}" for k in hidden)
    clipped = any(
        view[0] > 0 or view[1] < extent for view, extent in zip(views, extents, strict=True)
    )
    notes = [hidden_start, f"{count} {unit}", "part of the tensor" if clipped else ""]
    _titles(ax, "The box in the tensor", "; ".join(filter(None, notes)))
    outside = _ends(plan, operands)
    ax.annotate(
        outside, (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points",
        fontsize=min(10, 950 / max(len(outside), 1)), color=VERMILLION,
    )  # fmt: skip


def _unit_size(ax: Axes) -> tuple[float, float]:
    """Return the dots of one unit of each axis."""
    box = ax.get_window_extent()
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    return box.width / abs(right - left), box.height / abs(high - low)


def _text_colour(background: NDArray[np.float64]) -> str:
    """Return a text colour that is readable on a background."""
    return "white" if background[:3] @ (0.3, 0.6, 0.1) < 0.5 else INK


def _draw_numbers(ax: Axes, x: NDArray[np.int64], y: NDArray[np.int64]) -> None:
    """Draw the numbers of all pixels, or of the first and the last if there is no room for all."""
    width, height = _unit_size(ax)
    room = min(width / 1.6, height)
    for n in range(x.size) if room > 15 else sorted({0, x.size - 1}):
        ax.text(
            x[n] + 0.5, y[n] + 0.5, str(n), ha="center", va="center", color=INK, bbox=LABEL,
            fontsize=min(max(room, 18) / 3, 10), clip_on=True,
        )  # fmt: skip


def _draw_lines(
    ax: Axes, plan: Plan, operands: Operands, smem_address: int, colours: Colours
) -> None:
    """Draw the lines of shared memory, with row and piece in each 16 bytes."""
    spread = plan.spread(smem_address, operands)
    base = smem_address // LINE
    total = -(-plan.extent(operands.w_halo) // LINE)
    lines = min(total, MAX_LINES)
    for place in range(lines * GROUPS):
        ax.add_patch(Rectangle((place % GROUPS, place // GROUPS), 1, 1, **GAP))
    line, column = np.divmod(spread.smem // PIECE - base * GROUPS, GROUPS)
    for row, piece in np.argwhere(line < lines):
        x, y = int(column[row, piece]), int(line[row, piece])
        share = spread.inside[row, piece] / plan.piece_bytes
        if share < 1:
            ax.add_patch(Rectangle((x, y), 1, 1, **OUTSIDE))
        ax.add_patch(Rectangle((x, y), share, 1, facecolor=colours[row], linewidth=0))
        ax.add_patch(Rectangle((x, y), 1, 1, facecolor="none", edgecolor="white", linewidth=0.8))
        ax.text(
            x + 0.5, y + 0.5, f"{row}·{piece}" if plan.row_bytes > PIECE else str(row),
            ha="center", va="center", fontsize=8.5, weight="bold" if piece == 0 else "normal",
            color=_text_colour(colours[row]) if share == 1 else INK,
            bbox=None if share == 1 else LABEL,
        )  # fmt: skip
        if piece == 0 and plan.row_bytes > PIECE:
            ax.add_patch(Rectangle((x + 0.03, y + 0.06), 0.94, 0.88, **FIRST))
    ax.set_xlim(0, GROUPS)
    ax.set_ylim(max(lines, 12), 0)
    ax.set_xticks(np.arange(GROUPS) + 0.5, [f"{4 * n}-{4 * n + 3}" for n in range(GROUPS)])
    ax.set_yticks(np.arange(lines) + 0.5, [f"{(base + n) * LINE:#x}" for n in range(lines)])
    ax.tick_params(length=0, labelsize=9)
    ax.xaxis.tick_top()
    ax.spines[:].set_visible(False)
    label = "row·piece" if plan.row_bytes > PIECE else "row"
    count = f"first {lines} of {total}" if lines < total else f"{lines}"
    subtitle = f"{label} in each 16 bytes of the {count} lines; left: address; top: banks"
    _titles(ax, "The box in shared memory", subtitle)


def _draw_conflicts(ax: Axes, plan: Plan, operands: Operands, smem_address: int) -> None:
    """Draw the wavefronts of reads down a column, with and without the swizzle."""
    smem = plan.spread(smem_address, operands).smem
    rows, pieces = smem.shape
    plain = (
        smem_address + np.arange(rows)[:, None] * plan.pitch + np.arange(pieces)[None, :] * PIECE
    )
    series: list[tuple[str, str, NDArray[np.int64]]] = [("no swizzle", ORANGE, plain)]
    if plan.swizzle is not Swizzle.NONE:
        series.insert(0, (plan.swizzle.name, BLUE, smem))
    columns = min(pieces, MAX_COLUMNS)
    width = 0.8 / len(series)
    reads = -(-rows // GROUPS) * pieces
    for n, (name, colour, addresses) in enumerate(series):
        wavefronts = conflicts(addresses).max(axis=-1)
        worst = wavefronts[:, :columns].max(axis=0)
        left = np.arange(columns) - 0.4 + width * n
        label = f"{name}: {wavefronts.sum()} wavefronts in all"
        bars = ax.bar(left, worst, width * 0.92, align="edge", color=colour, label=label)
        ax.bar_label(bars, fontsize=9, padding=2, color=INK)
    ax.set_ylim(0, 9.2)
    ax.set_yticks([0, 2, 4, 6, 8])
    ax.set_xlim(*((columns - 1 + side * max(columns + 0.2, 5)) / 2 for side in (-1, 1)))
    ax.set_xticks(range(columns))
    ax.tick_params(length=0)
    ax.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    part = f" ({columns} of {pieces})" if columns < pieces else ""
    ax.set_xlabel(f"column: piece of the row{part}")
    ax.set_ylabel("accesses to one bank group")
    ax.legend(
        loc="lower left", bbox_to_anchor=(-0.011, 0.97), ncols=2, frameon=False, fontsize=10,
        handlelength=1.2, borderaxespad=0, borderpad=0.4,
    )  # fmt: skip
    subtitle = f"8 threads read 16 bytes each, of 8 rows: 1 is best, 8 is worst; {reads} such reads"
    _titles(ax, "Bank conflicts of a read down a column", subtitle)
