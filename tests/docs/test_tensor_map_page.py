"""The tables of docs/tensor_map.md: the driver's bytes can be made from them, as the RTL reads."""

import dataclasses
import doctest
import math
import re
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from amaranth.hdl import Cat

from golden import DataType, TensorMap, TmaError
from golden.reduction import TENSOR_PAIRS
from hw.flow.cache import ROOT
from hw.params import PRESETS
from hw.setup import map_override
from hw.setup.map_decoder import MapDecoder, MapFormat
from tests.hw.simulate import evaluate

PAGE = ROOT / "docs" / "tensor_map.md"
MAPS = ROOT / "tests" / "silicon" / "tensor_maps.npz"


def table(name: str) -> list[list[str]]:
    """Return the cells of a table of the page, without its head."""
    text = PAGE.read_text().partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0]
    lines = text.strip().splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@cache
def number(text: str, i: int) -> int:
    """Return the value of ``3i + 2``, or of ``w3 + i``."""
    return eval(re.sub(r"(\d)i", r"\1*i", text.removeprefix("w")), {"i": i})


@dataclasses.dataclass
class Row:
    """A row of the table of words."""

    word: str
    bits: str
    maps: str
    field: str
    value: str

    def __post_init__(self) -> None:
        self.code = compile(self.value.strip("`"), self.field, "eval")
        self.has_index = "i" in self.code.co_names

    def place(self, i: int = 0) -> tuple[int, int, int]:
        """Return the word, the lowest bit and the width of field ``i``."""
        high, _, low = self.bits.partition(":")
        low_bit = number(low or high, i)
        return number(self.word, i), low_bit, number(high, i) - low_bit + 1

    def applies(self, mode: str, rank: int) -> bool:
        """Return whether a map has the field."""
        wanted, _, of_rank = self.maps.partition(", rank ")
        return wanted in ("all", mode) and int(of_rank or rank) == rank


ROWS = [Row(*cells) for cells in table("words")]


def values_of(case: np.void) -> dict[str, object]:
    """Return what the expressions of the table may name, of a recorded call."""
    rank, data_type = int(case["rank"]), DataType(int(case["dtype"]))
    lengths = {"global_strides": rank - 1, "lower_corner": rank - 2, "upper_corner": rank - 2}
    lists = ("global_dim", "box_dim", "element_strides", *lengths)
    scalars = ("rank", "interleave", "swizzle", "l2_promotion", "oob_fill", "global_address")
    scalars += ("channels_per_pixel", "pixels_per_column")
    return {
        **{name: case[name][: lengths.get(name, rank)].tolist() for name in lists},
        **{name: int(case[name]) for name in scalars},
        "mode": int(case["mode"] == "im2col"),
        "format": data_type.format,
        "tf32": int(data_type.rounds),
        "size": data_type.itemsize,
        "prod": math.prod,
        "zip": zip,
    }


def words_of(case: np.void) -> list[int]:
    """Return the words of a map, made from the table."""
    names = values_of(case)
    words = [0] * 32
    for row in ROWS:
        if not row.applies(str(case["mode"]), int(case["rank"])):
            continue
        for i in range(5 if row.has_index else 1):
            try:
                value = eval(row.code, {"i": i, **names})
            except IndexError:  # the tensor has no such dimension
                break
            word, low, width = row.place(i)
            words[word] |= (value & ((1 << width) - 1)) << low
    return words


def test_the_driver_writes_the_bytes_of_the_table():
    cases = np.load(MAPS)["cases"]
    accepted = cases[cases["encode_status"] == 0]
    assert f"all {len(accepted):,} recorded maps" in PAGE.read_text()
    assert {str(mode) for mode in accepted["mode"]} == {"tile", "im2col"}
    for case in accepted:
        assert words_of(case) == case["descriptor"].tolist(), case


def test_each_bit_has_one_row():
    for mode, rank in (("tile", 5), ("im2col", 3), ("im2col", 4), ("im2col", 5)):
        taken = {}
        for row in ROWS:
            count = {"global_strides": 4, "box_dim": 4, "lower_corner": rank - 2}
            count["upper_corner"] = rank - 2
            name = row.code.co_names[0] if row.has_index else ""
            for i in range(count.get(name, 5) if row.has_index else 1):
                word, low, width = row.place(i)
                bits = {(word, low + bit) for bit in range(width)}
                if row.applies(mode, rank):
                    assert not bits & taken.keys(), row
                    taken |= dict.fromkeys(bits, row)


def test_the_rtl_has_the_fields_of_the_table():
    layout = {field.offset: field.width for _, field in MapFormat.as_shape()}
    assert {low: width for word, low, width in map(Row.place, ROWS) if word == 2} == layout
    words = {row.code.co_names[0]: row.place()[0] for row in reversed(ROWS) if row.code.co_names}
    assert words["global_address"] == map_override.ADDRESS_WORD
    assert words["global_strides"] == map_override.STRIDE_WORD
    assert words["global_dim"] == map_override.DIM_WORD
    assert ("w7", "4i + 3:4i") in {(row.word, row.bits) for row in ROWS}
    assert map_override.UPPER_STRIDES_WORD == 7


def test_types():
    def cells(item: DataType) -> list[str]:
        ops = sorted(op for kind, op in TENSOR_PAIRS if kind is item)
        nan = "yes" if item.is_float else "no"
        return [
            f"{int(item)} `{item.name}`",
            *(str(number) for number in (item.itemsize, item.format, int(item.rounds))),
            *(nan, ", ".join(op.name.lower() for op in ops)),
        ]

    assert table("types") == [cells(item) for item in DataType if not item.is_sub_byte]


TILED = TensorMap.tiled("f16", 0, (64, 8, 8, 8, 8), (128, 1024, 8192, 65536), (8, 1, 1, 1, 1))


@pytest.mark.parametrize(("cell", "least", "most"), table("limits"))
def test_limits(cell, least, most):
    """A value at a limit fits, and one beyond it does not."""
    names = re.findall(r"`(\w+)(?:\[i\])?`", cell)
    rank = int((re.findall(r"rank (\d)", cell) or [5])[0])
    low, high = (eval(text) for text in (least, most))
    step = 16 if names == ["global_strides"] else 1

    def build(name: str, value: int) -> TensorMap:
        if name == "rank":
            dims = max(value, 0)
            return TensorMap(DataType.FLOAT16, 0, (8,) * dims, (16,) * (dims - 1), (1,) * dims,
                             box_dim=(8,) * dims)  # fmt: skip
        if hasattr(TILED, name) and "corner" not in name and not name.startswith(("ch", "pi")):
            entries = getattr(TILED, name)
            return dataclasses.replace(TILED, **{name: (value, *entries[1:])})
        corners = (0,) * (rank - 2)
        fields = {"lower_corner": corners, "upper_corner": corners}
        fields |= {"channels_per_pixel": 8, "pixels_per_column": 8}
        fields[name] = (value, *corners[1:]) if "corner" in name else value
        dims = (8,) * rank
        strides = (16,) * (rank - 1)
        return TensorMap(DataType.FLOAT16, 0, dims, strides, (1,) * rank, mode=1, **fields)

    for name in names:
        for value in (low, high):
            build(name, value).encode()
        for value in (low - step, high + step):
            with pytest.raises(TmaError):
                build(name, value)


def test_ignored_bits():
    """The unit decodes a map alike, whatever the bits are that the page calls ignored."""
    text = PAGE.read_text()
    (listed,) = re.findall(r"\*Ignored\*: (.*?), fields of", text)
    params = PRESETS["default"]
    words = [int.from_bytes(TILED.encode()[4 * n : 4 * n + 4], "little") for n in range(16)]
    samples = [words]
    for word, high, low in re.findall(r"w(\d+)\[(\d+):(\d+)\]", listed):
        for bit in range(int(low), int(high) + 1):
            samples.append([*words])
            samples[-1][int(word)] ^= 1 << bit
    assert len(samples) == 1 + 3 + 13 + 16 + 9

    def decoded(m, *inputs):
        m.submodules.decoder = decoder = MapDecoder(params)
        m.d.comb += [decoder.words[n].eq(value) for n, value in enumerate(inputs)]
        return Cat(decoder.o.as_value())

    results = evaluate(decoded, [32] * 16, samples)
    assert {*results} == {results[0]}
    refused = [*words]
    refused[2] |= 3 << 11  # interleave 3
    assert all(a != b for a, b in pairwise(evaluate(decoded, [32] * 16, [words, refused])))


def test_examples():
    assert doctest.testfile(str(PAGE), module_relative=False).failed == 0
