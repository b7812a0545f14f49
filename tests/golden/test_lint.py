"""Lint of tensor maps: every code, by maps, bytes and arguments, and the command line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import golden
from golden import (
    Arch,
    Descriptor,
    ErrorCode,
    Finding,
    LintCode,
    Severity,
    TensorMap,
    assert_clean,
    lint,
)
from golden.__main__ import main
from golden.arguments import map_of_arguments
from golden.vectors import read_cases

WORKLOADS = Path(__file__).parents[1] / "silicon" / "workloads.npz"
SWIZZLED = {"swizzle": "128B", "l2_promotion": "256B"}
GOOD = TensorMap.tiled("bf16", 1 << 20, (1024, 512), (2048,), (64, 128), **SWIZZLED)
IMAGE = ("f16", 0, (64, 14, 8, 64), (128, 1792, 14336))


def tiled(*shape, **options):
    return TensorMap.tiled("u8", *shape, **SWIZZLED | options)


def codes(findings, severity=None):
    """Return the names of the codes of findings, all or those of a severity."""
    return [f.code.name for f in findings if severity in (None, f.severity)]


def test_a_good_map_has_no_findings():
    assert lint(GOOD) == lint(GOOD.encode()) == []
    assert lint(Descriptor.from_bytes(GOOD.encode())) == []
    assert golden.lint is lint


@pytest.mark.parametrize(
    ("tensor_map", "code", "parameter", "text"),
    [
        (
            tiled(0, (1024, 64), (1040,), (128, 8)),
            "ROW_START",
            "global_strides[0]",
            "global_strides[0] = 1040 bytes: rows of 128 bytes touch 2 lines of 128 bytes where 1 "
            "would do: 2 to 4 clocks each on an H200",
        ),
        (
            tiled(0x40, (1024, 64), (1024,), (128, 8)),
            "ROW_START",
            "global_address",
            "global_address = 0x40: rows of 128 bytes touch 2 lines of 128 bytes where 1 would do: "
            "2 to 4 clocks each on an H200",
        ),
        (
            tiled(0, (960, 64), (1024,), (96, 8), swizzle="none"),
            "ROW_START",
            "box_dim[0]",
            "box_dim[0] = 96 bytes: rows of 96 bytes touch 2 lines of 128 bytes where 1 would do: "
            "2 to 4 clocks each on an H200",
        ),
        (
            tiled(0x10, (16, 64), (128,), (16, 8), swizzle="none"),
            "ROW_START",
            "global_address",
            "global_address = 0x10: rows of 16 bytes start off a sector of 32 bytes: 2 to 4 clocks "
            "each on an H200",
        ),
        (
            tiled(0x20, (1024, 64), (1024,), (64, 8), swizzle="64B"),
            "ROW_START",
            "global_address",
            "global_address = 0x20: rows of 64 bytes touch 2 lines of 128 bytes where 1 would do: "
            "2 to 4 clocks each on an H200",
        ),
        (
            tiled(0, (1024, 64), (1024,), (64, 8), swizzle="64B"),
            "SHORT_ROW",
            "box_dim[0]",
            "rows of 64 bytes are less than a line of 128 bytes, and take as long on an H200",
        ),
        (
            tiled(0, (1024, 64), (1024,), (16, 8), swizzle="none"),
            "SHORT_ROW",
            "box_dim[0]",
            "rows of 16 bytes are less than a sector of 32 bytes, the least that L2 fetches",
        ),
        (
            tiled(0, (1024, 64), (1024,), (128, 8), swizzle="none"),
            "BANK_CONFLICTS",
            "swizzle",
            "8 threads that read 16 bytes of 8 rows take 8 wavefronts with swizzle NONE, 1 with "
            "SWIZZLE_128B",
        ),
        (
            tiled(0, (1024, 64), (1024,), (64, 4), swizzle="none"),
            "BANK_CONFLICTS",
            "swizzle",
            "8 threads that read 16 bytes of 4 rows take 2 wavefronts with swizzle NONE, 1 with "
            "SWIZZLE_64B",
        ),
        (
            tiled(0, (1024, 64), (1024,), (256, 8), swizzle="none"),
            "BANK_CONFLICTS",
            "swizzle",
            "8 threads that read 16 bytes of 8 rows take 8 wavefronts with swizzle NONE; rows of "
            "at most 128 bytes can have SWIZZLE_128B",
        ),
        (
            tiled(0, (1024, 64), (1024,), (64, 8)),
            "UNUSED_SPAN",
            "swizzle",
            "rows of 64 bytes lie 128 bytes apart with SWIZZLE_128B: 64 of each 128 bytes of "
            "shared memory are not written",
        ),
        (
            tiled(0, (128, 64), (1024,), (128, 8)),
            "L2_PROMOTION",
            "l2_promotion",
            "l2_promotion = L2_256B: a miss in L2 fetches 256 bytes, but a row of the tensor has "
            "128 bytes",
        ),
        (
            tiled(0, (100, 64), (128,), (128, 8), l2_promotion="128B"),
            "ROW_PADDING",
            "global_dim[0]",
            "global_dim[0] = 100 elements end at byte 100 of a row: the store overwrites bytes "
            "100 to 111",
        ),
        (
            tiled(0, (256, 64), (128,), (128, 8)),
            "ROWS_OVERLAP",
            "global_strides[0]",
            "global_strides[0] = 128 is less than a row of 256 bytes: rows overlap",
        ),
        (
            tiled(0, (1024, 64), (1024,), (128, 8), (2, 1)),
            "STRIDE_IGNORED",
            "element_strides[0]",
            "element_strides[0] = 2 has an effect with interleave only",
        ),
    ],
)
def test_warnings(tensor_map, code, parameter, text):
    found = [finding for finding in lint(tensor_map) if finding.code.name == code]
    severity = Severity.WARNING
    assert [(f.severity, f.parameter, f.message) for f in found] == [(severity, parameter, text)]
    assert str(found[0]) == f"warning: {text} [{code}]"


@pytest.mark.parametrize(
    ("tensor_map", "code", "parameter", "text"),
    [
        (
            tiled(0, (1024, 64), (1024,), (128, 8), l2_promotion="none"),
            "L2_PROMOTION",
            "l2_promotion",
            "l2_promotion is NONE: a miss in L2 fetches single sectors of 32 bytes",
        ),
        (
            tiled(0, (1024, 60), (1024,), (128, 8)),
            "BOX_AT_EDGE",
            "global_dim[1]",
            "global_dim[1] = 60 is not a multiple of 8: the last box reaches 4 elements past the "
            "end: loads fill them, stores drop them",
        ),
        (
            tiled(0, (1024, 5), (1024,), (128, 8)),
            "BOX_AT_EDGE",
            "global_dim[1]",
            "box_dim[1] = 8 is more than global_dim[1] = 5: a box at 0 reaches 3 elements past "
            "the end: loads fill them, stores drop them",
        ),
        (
            TensorMap.im2col(*IMAGE, (-1, 0), (0, 0), 64, 32, **SWIZZLED),
            "LOADS_ONLY",
            "lower_corner",
            "the corners reach outside the tensor: stores and reductions are refused",
        ),
    ],
)
def test_notes(tensor_map, code, parameter, text):
    assert lint(tensor_map) == [Finding(Severity.NOTE, LintCode[code], parameter, text)]


@pytest.mark.parametrize(
    ("tensor_map", "absent"),
    [
        (tiled(0, (64, 9), (64,), (64, 9), swizzle="64B"), "ROW_START"),  # rows follow each other
        (tiled(0, (1024, 1), (1040,), (128, 1)), "ROW_START"),  # the stride of a single row
        (tiled(0, (1024, 64), (1024,), (16, 8), swizzle="none"), "BANK_CONFLICTS"),
        (tiled(0, (1024, 64), (1024,), (128, 1), swizzle="none"), "BANK_CONFLICTS"),
        (tiled(0, (64, 64), (64,), (64, 8), swizzle="64B"), "L2_PROMOTION"),  # rows without gaps
        (tiled(0, (1024, 64), (1024,), (64, 1)), "UNUSED_SPAN"),  # a single row
        (tiled(0, (16, 9, 4), (256, 2304), (16, 8, 1), interleave=1, swizzle=0), "SHORT_ROW"),
        (tiled(0, (16, 9, 4), (272, 2448), (16, 8, 1), interleave=1, swizzle=0), "ROW_START"),
        (tiled(0, (64, 13), (64,), (64, 8), (1, 8), swizzle="64B"), "BOX_AT_EDGE"),
    ],
)
def test_what_is_not_found(tensor_map, absent):
    assert absent not in codes(lint(tensor_map))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"swizzle": "32B"}, "INNER_SPAN"),
        ({"box_dim": (33, 8)}, "INNER_ALIGN"),
        ({"global_address": 8}, "GLOBAL_ADDRESS"),
        ({"data_type": 13}, "DATA_TYPE"),
    ],
)
def test_maps_that_the_encoder_and_the_unit_refuse(changes, code):
    """One finding for one rule, though both refuse the map."""
    (finding,) = lint(replace(GOOD, **changes))
    assert (finding.severity, finding.code) == (Severity.ERROR, ErrorCode[code])
    assert lint(replace(GOOD, **changes).encode()) == [finding]
    assert finding.parameter in finding.message


def test_a_box_that_the_encoder_accepts_and_no_shared_memory_holds():
    tensor_map = tiled(0, (16, 256, 64), (16, 4096), (16, 256, 8))
    error, *others = lint(tensor_map)
    assert str(error) == (
        "error: 262144 bytes are more than a CTA's shared memory, 233472 [SMEM_RANGE]"
    )
    assert Severity.ERROR not in {finding.severity for finding in others}


def test_a_map_that_the_encoder_does_not_write_but_the_unit_takes():
    """The version field is an error; other findings follow, errors first."""
    data = bytearray(tiled(0, (1024, 60), (1040,), (128, 8)).encode())
    data[8] |= 2
    findings = lint(data)
    assert codes(findings) == ["VERSION", "ROW_START", "BOX_AT_EDGE"]
    order = [Severity.ERROR, Severity.WARNING, Severity.NOTE]
    assert [finding.severity for finding in findings] == order


def test_a_wide_map_needs_a_swizzle():
    wide = TensorMap.im2col(
        *("u8", 0, (64, 9, 9), (64, 576), (0,), (0,), 64, 32), wide=True, arch=Arch.SM_100A
    )
    assert codes(lint(wide, Arch.SM_100A), Severity.ERROR) == ["MAP_MODE"]
    assert codes(lint(wide), Severity.ERROR) == ["VERSION"]


def test_bits_that_the_unit_does_not_read():
    data = bytearray(GOOD.encode())
    data[64] ^= 1
    data[124] = 5
    assert [(f.code.name, f.parameter) for f in lint(data)] == [
        ("UNREAD_BITS", "w16"),
        ("UNREAD_BITS", "w31"),
    ]
    assert lint(bytes(data[:64])) == []


def test_maps_of_published_kernels():
    """None has an error, and the lint warns about few of them."""
    maps = {case.descriptor for case in read_cases(WORKLOADS)}
    findings = [lint(data) for data in maps]
    assert all(not codes(found, Severity.ERROR) for found in findings)
    assert sum(bool(codes(found, Severity.WARNING)) for found in findings) <= len(maps) // 8


def test_the_guide_lists_the_codes():
    page = (Path(__file__).parents[2] / "docs" / "golden_model.md").read_text()
    missing = [code for code in LintCode if f"\n| `{code.name}` | {code.value} |\n" not in page]
    assert missing == []


TILED = {
    "tensorMap": None,
    "tensorDataType": "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16",
    "tensorRank": 2,
    "globalAddress": "0x100000",
    "globalDim": [1024, 512],
    "globalStrides": [2048],
    "boxDim": [64, 128],
    "elementStrides": [1, 1],
    "interleave": "CU_TENSOR_MAP_INTERLEAVE_NONE",
    "swizzle": "CU_TENSOR_MAP_SWIZZLE_128B",
    "l2Promotion": "CU_TENSOR_MAP_L2_PROMOTION_L2_256B",
    "oobFill": "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE",
}
IM2COL = {
    "tensorDataType": 6,
    "globalDim": [64, 14, 8, 64],
    "globalStrides": [128, 1792, 14336],
    "pixelBoxLowerCorner": [0, 0],
    "pixelBoxUpperCorner": [0, 0],
    "channelsPerPixel": 64,
    "pixelsPerColumn": 32,
    "elementStrides": None,
    "interleave": "NONE",
    "swizzle": "SWIZZLE_128B",
    "l2Promotion": "256b",
    "oobFill": 0,
}


def test_arguments_of_the_encoders():
    assert map_of_arguments(TILED) == GOOD
    im2col = TensorMap.im2col(*IMAGE, (0, 0), (0, 0), 64, 32, **SWIZZLED)
    assert map_of_arguments(IM2COL) == im2col
    own = {"data_type": "bf16", "global_address": 1 << 20, "global_dim": (1024, 512)}
    own |= {"global_strides": (2048,), "box_dim": (64, 128), **SWIZZLED}
    assert map_of_arguments(own) == GOOD
    assert lint(TILED) == lint(IM2COL) == []


def test_arrays_in_c_may_be_longer_than_the_rank():
    longer = {name: [*value, 7, 7] for name, value in TILED.items() if isinstance(value, list)}
    assert map_of_arguments(TILED | longer) == GOOD
    del longer["globalDim"]
    without_rank = {name: value for name, value in TILED.items() if name != "tensorRank"}
    assert codes(lint(without_rank | longer)) == ["LENGTH"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"boxDim": [64, 257]}, "box_dim[1] = 257: must be from 1 to 256"),
        ({"boxDim": [64.0, 8]}, "box_dim[0] = 64.0: must be an integer, from 1 to 256"),
        ({"boxDim": 64}, "box_dim = 64: must be a sequence of integers"),
        ({"swizzle": "CU_TENSOR_MAP_SWIZZLE_256B"}, "swizzle = 256B: must be from 0 to 7, or one"),
        ({"tensorRank": 6}, "rank = 6: must be from 1 to 5"),
        ({"tensorRank": 3}, "len(global_strides) = 1: must be 2"),
        ({"globalAddress": "0x7"}, "global_address = 0x7: must be a multiple of 16"),
    ],
)
def test_arguments_that_the_encoder_refuses(changes, message):
    """With a rank of 3, dimension 2 is missing."""
    if "tensorRank" in changes and changes["tensorRank"] == 3:
        changes = changes | {"globalDim": [1024, 512, 1]}
    (finding,) = lint(TILED | changes)
    assert finding.severity is Severity.ERROR
    assert finding.message.startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (TILED | {"boxDimm": [1]}, "unknown argument 'boxDimm': the nearest is boxDim"),
        (TILED | {"box_dim": [1]}, "box_dim: must not be given twice"),
        (TILED | {"channelsPerPixel": 1}, "box_dim and channels_per_pixel: must not be given tog"),
        ({"tensorDataType": 0}, "no box_dim, global_dim: the arguments of an encoder must have"),
        ({"channelsPerPixel": 64}, "no data_type, global_dim, lower_corner, pixels_per_column, u"),
        ({}, "no box_dim, data_type, global_dim: "),
    ],
)
def test_names_of_arguments(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        lint(arguments)


@pytest.fixture
def files(tmp_path):
    """Return paths of a good map, of a pair of maps, and of arguments."""
    paths = [tmp_path / name for name in ("good.bin", "pair.hex", "arguments.json")]
    paths[0].write_bytes(GOOD.encode())
    slow = tiled(0, (1024, 64), (1040,), (128, 8)).encode()
    paths[1].write_text(f"{GOOD.encode().hex()}\n{slow.hex()}\n")
    paths[2].write_text(json.dumps([TILED, TILED | {"swizzle": "32B"}]))
    return [str(path) for path in paths]


def run(capsys, *arguments, status):
    assert main(["lint", *arguments]) == status
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_text_and_exit_status(capsys, files):
    good, pair, arguments = files
    assert run(capsys, good, status=0) == "0 errors, 0 warnings, 0 notes\n"
    assert run(capsys, GOOD.encode().hex(), status=0) == "0 errors, 0 warnings, 0 notes\n"
    warned = run(capsys, good, pair, status=0).splitlines()
    assert warned[0].startswith(f"{pair}[2]: warning: global_strides[0] = 1040 bytes: rows of 128")
    assert warned[1:] == ["0 errors, 1 warning, 0 notes"]
    refused = run(capsys, arguments, status=1).splitlines()
    assert refused == [
        f"{arguments}[2]: error: box_dim[0]*2 = 128 bytes: must be at most 32 with SWIZZLE_32B "
        "[INNER_SPAN]",
        "1 error, 0 warnings, 0 notes",
    ]


def test_json(capsys, files):
    report = json.loads(run(capsys, "--json", *files, status=1))
    labels = [entry["map"] for entry in report["maps"]]
    good, pair, arguments = files
    assert labels == [good, f"{pair}[1]", f"{pair}[2]", f"{arguments}[1]", f"{arguments}[2]"]
    found = [entry["findings"] for entry in report["maps"]]
    assert found[0] == found[1] == found[3] == []
    assert found[2][0]["code"] == "ROW_START"
    assert found[4] == [
        {
            "severity": "error",
            "code": "INNER_SPAN",
            "parameter": "box_dim[0]*2",
            "message": "box_dim[0]*2 = 128 bytes: must be at most 32 with SWIZZLE_32B",
        }
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"boxDim": }', "not JSON: Expecting value: line 1 column 12 (char 11)"),
        ('["boxDim"]', "must be the arguments of an encoder by name, or a list of them"),
        ('{"boxDim": 1}', "no data_type, global_dim: the arguments of an encoder must have them"),
        ('[{"boxDim": 1}, {"x": 1}]', "no data_type, global_dim"),
        ("garbage", "'garbage': must be hexadecimal digits"),
        ("", "the file is empty"),
    ],
)
def test_bad_usage(capsys, tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_text(content)
    assert main(["lint", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"golden lint: {path}")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_architecture_of_the_command(capsys):
    packed = TensorMap.tiled(
        *("16u6_align16b", 0, (256, 64), (192,), (128, 64)), swizzle="128B", arch=Arch.SM_100A
    )
    assert "DATA_TYPE" in run(capsys, packed.encode().hex(), status=1)
    assert "0 errors" in run(capsys, packed.encode().hex(), "--arch", "sm_100a", status=0)


WIDE = {
    "tensorDataType": "CU_TENSOR_MAP_DATA_TYPE_FLOAT16",
    "tensorRank": 4,
    "globalDim": [64, 14, 8, 64, 1],
    "globalStrides": [128, 1792, 14336, 0],
    "pixelBoxLowerCornerWidth": -1,
    "pixelBoxUpperCornerWidth": 1,
    "channelsPerPixel": 64,
    "pixelsPerColumn": 32,
    "mode": "CU_TENSOR_MAP_IM2COL_WIDE_MODE_W",
    "swizzle": "CU_TENSOR_MAP_SWIZZLE_128B",
    "l2Promotion": "256b",
}


def test_arguments_of_the_wide_encoder():
    tensor_map = map_of_arguments(WIDE, Arch.SM_100A)
    assert (tensor_map.wide, tensor_map.lower_corner, tensor_map.upper_corner) == (
        True,
        (-1,),
        (1,),
    )
    assert tensor_map == map_of_arguments(WIDE | {"mode": 1}, Arch.SM_100A)
    assert codes(lint(WIDE, Arch.SM_120A), Severity.ERROR) == []
    (error,) = lint(WIDE)
    assert (error.code, error.parameter) == (ErrorCode.VERSION, "wide")
    assert ".im2col::w to .shared::cta needs SM_100A" in error.message
    with pytest.raises(ValueError, match="mode = 'X': must be 0, 1, W or W128"):
        lint(WIDE | {"mode": "X"}, Arch.SM_100A)
    with pytest.raises(ValueError, match="unknown argument 'mode'"):
        lint(TILED | {"mode": 0})


def test_the_bit_of_large_tensors():
    """Drivers set it for small tensors, too; a box that reaches outside may then fault."""
    small = tiled(1 << 20, (256, 16), (256,), (128, 8), l2_promotion="256B", swizzle="128B")
    large = replace(small, global_dim=(256, 513))
    for tensor_map, found in ((small, ["OOB_128K"]), (large, [])):
        marked = replace(tensor_map, oob_128k=True)
        for arch in Arch.members()[1:]:
            assert codes(lint(marked, arch), Severity.WARNING) == found
            assert lint(tensor_map, arch) == [
                finding for finding in lint(marked, arch) if finding.code is not LintCode.OOB_128K
            ]
        assert codes(lint(marked), Severity.WARNING) == []
        assert "UNREAD_BITS" in codes(lint(marked), Severity.NOTE)
    assert "has 4096 bytes" in str(lint(replace(small, oob_128k=True), Arch.SM_100A)[0])
    data = replace(small, oob_128k=True).encode()
    assert Descriptor.from_bytes(data).oob_128k
    assert TensorMap.decode(data) == replace(small, oob_128k=True)


def test_maps_for_the_own_cta_only():
    packed = TensorMap.tiled(
        *("16u4_align8b", 0, (256, 64), (128,), (128, 64)), swizzle="128B_ATOM_32B",
        arch=Arch.SM_120A,
    )  # fmt: skip
    notes = [f for f in lint(packed, Arch.SM_120A) if f.code is LintCode.OWN_CTA_ONLY]
    assert [(f.severity, f.parameter) for f in notes] == [
        (Severity.NOTE, "data_type"),
        (Severity.NOTE, "swizzle"),
    ]
    assert notes[0].message.endswith(
        "a type of 4 or 6 bits to .shared::cluster needs SM_100A, SM_103A or SM_107A, not SM_120A"
    )
    assert "OWN_CTA_ONLY" not in codes(lint(packed, Arch.SM_100A))


def test_exit_status_of_a_severity(capsys, files):
    _, pair, _ = files
    assert "1 warning" in run(capsys, pair, status=0)
    assert "1 warning" in run(capsys, pair, "--fail-on", "warning", status=1)
    plain = replace(GOOD, l2_promotion="NONE").encode().hex()
    assert "1 note" in run(capsys, plain, "--fail-on", "warning", status=0)
    assert "1 note" in run(capsys, plain, "--fail-on", "note", status=1)


def test_assertion_for_tests_of_others():
    assert_clean(GOOD)
    slow = tiled(0, (1024, 64), (1040,), (128, 8), swizzle="128B", l2_promotion="256B")
    with pytest.raises(
        AssertionError, match=r"^warning: global_strides\[0\] = 1040 bytes"
    ) as caught:
        assert_clean(slow)
    assert str(caught.value).count("\n") == 0
    assert_clean(slow, allowed=[LintCode.ROW_START])
    assert_clean(slow, least=Severity.ERROR)
    with pytest.raises(AssertionError, match="INNER_ALIGN"):
        assert_clean(TILED | {"boxDim": [33, 8]}, least=Severity.ERROR)
