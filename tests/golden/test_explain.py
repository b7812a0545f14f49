"""Explanations of tensor maps, and the sources that the command line takes."""

import io
import itertools
import struct
import sys
from dataclasses import replace

import pytest

from golden import Arch, Descriptor, TensorMap, TmaError
from golden.__main__ import main
from golden.errors import errors_table
from golden.explain import bits_of, explain, fields_of

PLAIN = TensorMap.tiled(
    "f16", 0x7F0000000000, (100, 16), (208,), (64, 8), swizzle="128B", l2_promotion="256B"
)
IM2COL = TensorMap.im2col(
    *("f16", 0, (64, 14, 9, 64), (128, 1792, 16128)), (-1, -2), (-3, 1), 64, 32, (1, 2, 1, 1)
)
EXPLAINED = """\
rank-2 tiled map of FLOAT16
  global_address   0x7f0000000000
  global_dim       (100, 16)  elements, innermost first
  global_strides   (208)  bytes
  box_dim          (64, 8)  = 1024 bytes of shared memory
  element_strides  (1, 1)
  interleave       NONE
  swizzle          SWIZZLE_128B
  l2_promotion     L2_256B
  oob_fill         NONE
  one load         1024 bytes (complete_tx): 8 rows of 128
  shared memory    1024 bytes from a multiple of 128, a row every 128
  coords[0]        a multiple of 8: 16 bytes
  pattern          SWIZZLE_128B repeats every 1024 bytes
  warning          global_strides[0] = 208 bytes: rows of 128 bytes touch 2
                   lines of 128 bytes where 1 would do: 2 to 4 clocks each on an
                   H200 [ROW_START]
  warning          global_dim[0] = 100 elements end at byte 200 of a row: the
                   store overwrites bytes 200 to 207 [ROW_PADDING]
  note             global_dim[0] = 100 is not a multiple of 64: the last box
                   reaches 28 elements past the end: loads fill them, stores
                   drop them [BOX_AT_EDGE]

┏━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┓
┃ word ┃ value      ┃ bits         ┃ holds                              ┃
┡━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┩
│ w0   │ 0x00000000 │ 31:0         │ global_address = 0x7f0000000000    │
│ w1   │ 0x00007f00 │ 31:0         │ global_address, upper half         │
│ w2   │ 0x00066310 │ 0            │ mode TILE                          │
│      │            │ 3:1          │ version 0                          │
│      │            │ 6:4          │ rank 2                             │
│      │            │ 10:7, 16     │ data_type FLOAT16                  │
│      │            │ 12:11        │ interleave NONE                    │
│      │            │ 14:13, 20:19 │ swizzle SWIZZLE_128B               │
│      │            │ 15           │ oob_fill NONE                      │
│      │            │ 18:17        │ l2_promotion L2_256B               │
│      │            │ 21           │ oob_128k False                     │
│      │            │ 22           │ wide (im2col::w) False             │
│ w3   │ 0x0000000d │ 31:0         │ global_strides[0] = 208 bytes      │
│ w4   │ 0x00000000 │ 31:0         │ global_strides[1]: -               │
│ w5   │ 0x00000000 │ 31:0         │ global_strides[2]: -               │
│ w6   │ 0x00000000 │ 31:0         │ global_strides[3]: -               │
│ w7   │ 0x00000000 │ 3:0          │ global_strides, bits 39:36 of each │
│ w8   │ 0x00000063 │ 31:0         │ global_dim[0] = 100                │
│ w9   │ 0x0000000f │ 31:0         │ global_dim[1] = 16                 │
│ w10  │ 0x00000000 │ 31:0         │ global_dim[2]: -                   │
│ w11  │ 0x00000000 │ 31:0         │ global_dim[3]: -                   │
│ w12  │ 0x00000000 │ 31:0         │ global_dim[4]: -                   │
│ w13  │ 0x3f000000 │ 5:0          │ element_strides = (1, 1)           │
│      │            │ 31:24        │ box_dim[0] = 64                    │
│ w14  │ 0x00000007 │ 7:0          │ box_dim[1:] = (8)                  │
│ w15  │ 0x00000000 │ 31:0         │ -                                  │
└──────┴────────────┴──────────────┴────────────────────────────────────┘
"""


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def words_of(tensor_map):
    return list(struct.unpack("<32I", tensor_map.encode()))


def explained(capsys, *source, status=0):
    """Return what `explain` prints, without blanks at the ends of lines."""
    assert main(["explain", *source]) == status
    captured = capsys.readouterr()
    assert captured.err == ""
    return "".join(f"{line.rstrip()}\n" for line in captured.out.splitlines())


def explained_words(capsys, words, *options, status=0):
    """Return what `explain` prints for these words, in one line."""
    text = " ".join(f"0x{word:08x}" for word in words)
    return " ".join(explained(capsys, text, *options, status=status).split())


def test_exact_text(capsys):
    assert explained(capsys, PLAIN.encode().hex()) == EXPLAINED


def test_a_map_as_argument_file_and_standard_input(capsys, tmp_path, monkeypatch):
    """The forms of captured maps are tested in test_capture.py."""
    data = PLAIN.encode()
    words = struct.unpack("<32I", data)
    text = " ".join(f"0x{word:08x}" for word in words)
    (tmp_path / "map.bin").write_bytes(data)
    (tmp_path / "map.txt").write_text(f"{text}\n")
    sources = [[text], text.split(), [str(tmp_path / "map.bin")], [str(tmp_path / "map.txt")]]
    for source in sources:
        assert explained(capsys, *source) == EXPLAINED
    for content in (data, text.encode()):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert explained(capsys, "-") == EXPLAINED


def test_half_a_map_suffices(capsys):
    assert explained(capsys, PLAIN.encode()[:64].hex()) == EXPLAINED


def test_several_maps_are_explained_one_by_one(capsys, tmp_path):
    """An illegal map among legal ones sets the exit status."""
    pair, single = tmp_path / "pair.bin", tmp_path / "single.bin"
    pair.write_bytes(PLAIN.encode() + IM2COL.encode())
    single.write_bytes(PLAIN.encode())
    text = explained(capsys, str(pair), str(single))
    places = [text.index(f"== {name}\n") for name in (f"{pair}[1]", f"{pair}[2]", f"{single}")]
    assert places == sorted(places)
    assert text.count(EXPLAINED) == 2
    assert "im2col map of FLOAT16" in text[places[1] : places[2]]
    pair.write_bytes(PLAIN.encode() + bytes([255] * 128))
    assert "not a map that the encoder writes" in explained(capsys, str(pair), status=1)
    text = explained(capsys, (PLAIN.encode() * 2).hex())
    assert "== map 1\n" in text
    assert text.count(EXPLAINED) == 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("0x12 zz", "'zz': must be hexadecimal digits, or the name of a file"),
        ("no_such_file.bin", "'no_such_file.bin': must be hexadecimal digits, or the name"),
        ("abc", "3 hexadecimal digits: must be an even number"),
        ("00" * 63, "63 bytes: must be 64 bytes, or a multiple of 128 bytes"),
        ("00" * 192, "192 bytes: must be 64 bytes, or a multiple of 128 bytes"),
        ("", "MAP is empty: must be the name of a file, or hexadecimal text"),
        (" \t", "MAP is empty: must be the name of a file, or hexadecimal text"),
        (".", ".: is a folder: must be a file with a tensor map"),
    ],
)
def test_bad_input(capsys, source, message):
    assert main(["explain", source]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"golden explain: {message}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello", "'hello': must be hexadecimal digits"),
        (b"", "the file is empty: must be a tensor map of 64 bytes, or a multiple of 128 bytes"),
        (b"\n \n", "the file is empty"),
        (PLAIN.encode() + b"\0" * 7, "135 bytes: must be 64 bytes, or a multiple of 128 bytes"),
        (PLAIN.encode()[:100], "100 bytes: must be 64 bytes, or a multiple of 128 bytes"),
        (bytes(1 << 21), "more than 1048576 bytes: must be tensor maps"),
    ],
    ids=["text", "empty", "blank", "trailing bytes", "cut off", "too large"],
)
def test_bad_files(capsys, tmp_path, content, message):
    path = tmp_path / "map"
    path.write_bytes(content)
    assert main(["explain", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"golden explain: {path}: {message}")


def test_a_missing_file_among_others_is_named(capsys, tmp_path):
    path = tmp_path / "map.bin"
    path.write_bytes(PLAIN.encode())
    assert main(["explain", str(path), "mapp.bin"]) == 2
    assert capsys.readouterr().err == "golden explain: mapp.bin: no such file\n"


def test_the_name_of_the_program(capsys):
    assert main(["explain", "zz"], prog="open-tma") == 2
    assert capsys.readouterr().err.startswith("open-tma explain: 'zz': must be")
    with pytest.raises(SystemExit):
        main(["lint", "--help"], prog="open-tma")
    assert "Example: open-tma lint " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "flip", "error"),
    [
        (2, 1 << 1, "version = 1: must be 0 [VERSION, choice]"),
        (2, 1 << 10, "data_type = code not assigned: must be from 0 to 12 on SM_90A"),
        (2, 3 << 11, "interleave = 3: must be from 0 to 2 [INTERLEAVE, silicon]"),
        (2, 1 << 20, "swizzle = SWIZZLE_128B_ATOM_32B_FLIP_8B: .swizzle_atomicity needs SM_100A"),
        (2, 0x70, "rank = 7: must be from 1 to 5"),
        (2, 1, "rank = 2: must be from 3 to 5 with im2col"),
        (0, 8, "global_address = 0x7f0000000008: must be a multiple of 16"),
        (13, 0x04 << 24, "box_dim[0]*2 = 120 bytes: must be a multiple of 16"),
        (13, 0x40 << 24, "box_dim[0]*2 = 256 bytes: must be at most 128 with SWIZZLE_128B"),
    ],
)
def test_illegal_map(capsys, word, flip, error):
    words = words_of(PLAIN)
    words[word] ^= flip
    text = explained_words(capsys, words, status=1)
    assert text.startswith(f"not a map that the encoder writes: {error}")
    assert "global_strides[0] = 208 bytes" in text
    assert "box_dim[0]" in text or "channels_per_pixel" in text


@pytest.mark.parametrize("arch", Arch.members(), ids=str)
def test_any_words_can_be_explained(capsys, arch):
    for setup in (0, 0xFFFFFFFF, *(1 << bit for bit in range(32))):
        words = [0xFFFF] * 16
        words[2] = setup
        data = struct.pack("<16I", *words)
        error = explain(data, arch).error
        if error is None:
            TensorMap.decode(data, arch=arch)
        else:
            with pytest.raises(TmaError) as caught:
                TensorMap.decode(data, arch=arch)
            assert str(error) == str(caught.value)
        text = explained_words(capsys, words, "--arch", arch.name.lower(), status=int(bool(error)))
        assert f"w2 │ 0x{setup:08x}" in text


def test_architecture(capsys):
    tensor_map = TensorMap.tiled(
        "16u6_align16b", 0, (256, 64), (192,), (128, 64), swizzle="128B", arch=Arch.SM_100A
    )
    words = words_of(tensor_map)
    assert "a type of 4 or 6 bits needs SM_100A" in explained_words(capsys, words, status=1)
    text = explained_words(capsys, words, "--arch", "sm_100a")
    assert "one load 6144 bytes (complete_tx): 64 rows of 128" in text
    assert "shared memory 8192 bytes" in text
    with pytest.raises(SystemExit) as caught:
        main(["explain", "00", "--arch", "sm_80"])
    assert caught.value.code == 2


def test_im2col(capsys):
    text = explained_words(capsys, words_of(IM2COL))
    for part in (
        "lower_corner = (-1, -2)",
        "upper_corner = (-3, 1)",
        "channels_per_pixel = 64",
        "pixels_per_column = 32",
        "32 rows of 128",
        "stores and reductions are refused",
    ):
        assert part in text


def wide_map(**options):
    return TensorMap.im2col(
        *("u8", 0, (64, 9, 9), (64, 576), (0,), (0,), 64, 32),
        wide=True,
        arch=Arch.SM_100A,
        **options,
    )


def test_wide_im2col(capsys):
    text = explained_words(capsys, words_of(wide_map(swizzle="64B")), "--arch", "sm_100a")
    assert "wide (im2col::w) True" in text
    assert "32 rows of 64" in text
    text = explained_words(capsys, words_of(wide_map()), "--arch", "sm_100a")
    assert "error mode = IM2COL_W with a rank-3 IM2COL map: needs a swizzle" in text


@pytest.mark.parametrize(
    ("tensor_map", "note"),
    [
        (
            TensorMap.tiled("u8", 0, (64, 5), (64,), (64, 8)),
            "box_dim[1] = 8 is more than global_dim[1] = 5: a box at 0 reaches 3 elements",
        ),
        (TensorMap.tiled("u8", 0, (64, 7), (64,), (64, 8), (1, 2)), None),
        (
            TensorMap.tiled("u8", 0, (64, 13), (64,), (64, 8), (1, 2)),
            "global_dim[1] = 13 is not a multiple of 8: the last box reaches 2 elements",
        ),
        (TensorMap.tiled("u8", 0, (16, 9, 1), (256, 0), (16, 8, 1), interleave=1), None),
        (TensorMap.tiled("f32", 0, (5,), (), (4,)), "overwrites bytes 20 to 31"),
        (TensorMap.tiled("u8", 0, (64, 8), (48,), (64, 8)), "global_strides[0] = 48 is less than"),
        (TensorMap.tiled("u8", 0, (64, 8), (64,), (64, 8), (2, 1)), "element_strides[0] = 2"),
        (
            TensorMap.tiled("u8", 0, (16, 256, 64), (16, 4096), (16, 256, 8), swizzle="128B"),
            "262144 bytes are more than a CTA's shared memory, 233472",
        ),
    ],
)
def test_findings(capsys, tensor_map, note):
    """Findings of the lint are listed; test_lint.py tests them."""
    text = explained_words(capsys, words_of(tensor_map))
    assert (note or "") in text
    if note is None:
        assert "[BOX_AT_EDGE]" not in text


def test_gap_behind_rows(capsys):
    tensor_map = TensorMap.tiled("u8", 0, (64, 8), (64,), (32, 8), swizzle="128B")
    text = explained_words(capsys, words_of(tensor_map))
    assert "256 bytes (complete_tx): 8 rows of 32" in text
    assert "1024 bytes from a multiple of 128, a row every 128, the last 96 not written" in text


def test_words_that_the_encoder_does_not_write(capsys):
    words = words_of(IM2COL)
    assert "the encoder writes" not in explained_words(capsys, words)
    words[15] |= 1 << 10
    words[16] = 0
    text = explained_words(capsys, words)
    assert "w15 = 0x41f: the encoder writes 0x1f (bits without a meaning, not read" in text
    assert "w16 = 0x0: the encoder writes 0x1000 (metadata, not read by the unit)" in text


def test_explain_as_a_function():
    explanation = explain(PLAIN.encode())
    assert explanation.error is None
    assert str(explanation.parts[0]) == str(PLAIN)
    with pytest.raises(TmaError, match="len"):
        explain(bytes(63))
    assert Descriptor.from_bytes(PLAIN.encode()).rank == 2


def test_errors(capsys, tmp_path):
    assert main(["errors"]) == 0
    assert capsys.readouterr().out == errors_table()
    path = tmp_path / "errors.md"
    assert main(["errors", str(path)]) == 0
    assert path.read_text() == errors_table()
    assert main(["errors", str(tmp_path / "none" / "errors.md")]) == 2
    assert "No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["explain", "lint", "draw", "errors", "forms"])
def test_help_has_an_example(capsys, command):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert f"Example: .venv/bin/python -m golden {command} " in capsys.readouterr().out


EVERY_BIT = {
    "rank 1": (TensorMap.tiled("u8", 0, (64,), (), (64,)), Arch.SM_90A),
    "tile": (PLAIN, Arch.SM_90A),
    "rank 5": (
        TensorMap.tiled("tf32", 1 << 40, (8, 3, 3, 3, 3), (32, 96, 288, 864), (8, 1, 2, 3, 1)),
        Arch.SM_90A,
    ),
    "im2col": (IM2COL, Arch.SM_90A),
    "im2col of rank 5": (
        TensorMap.im2col(
            *("f16", 0, (64, 8, 8, 8, 2), (128, 1024, 8192, 65536)), (-1,) * 3, (1,) * 3, 64, 32
        ),
        Arch.SM_100A,
    ),
    "wide": (wide_map(swizzle="64B"), Arch.SM_107A),
    "128 KiB": (replace(PLAIN, oob_128k=True), Arch.SM_120A),
    "packed": (
        TensorMap.tiled("16u4_align8b", 0, (64, 9), (32,), (64, 2), arch=Arch.SM_120A),
        Arch.SM_120A,
    ),
}


@pytest.mark.parametrize("name", EVERY_BIT)
def test_no_bit_is_ignored_silently(name):
    """Each bit that is flipped changes a named field, or is one that is said to be not used."""
    tensor_map, arch = EVERY_BIT[name]

    def table(words):
        descriptor = Descriptor(tuple(words[:16]))
        explain(struct.pack("<32I", *words), arch)
        return fields_of(descriptor, words)

    words = words_of(tensor_map)
    before = table(words)
    for word, bit in itertools.product(range(32), range(32)):
        flipped = list(words)
        flipped[word] ^= 1 << bit
        after = table(flipped)
        changed = [
            text
            for i in {*before, *after}
            for _, text in {*after.get(i, ())} - {*before.get(i, ())}
        ]
        assert changed, (word, bit)
        (*_, holder) = [text for bits, text in after[word] if bits_of(bits) >> bit & 1] or [""]
        assert holder, (word, bit)
        assert sum(bits_of(bits) >> bit & 1 for bits, _ in after[word]) == 1, (word, bit)
        if word > 15:
            assert holder.endswith("not read by the unit")
        # A field that changes is that of the bit, or one that the bit helps to interpret.
        named = holder not in [text for _, text in before.get(word, ())]
        upper_half = holder.startswith(("global_address, upper", "global_strides, bits"))
        assert named or upper_half, (word, bit, holder)
