"""Captured tensor maps in every form that debuggers and dump tools print."""

import io
import struct

import numpy as np
import pytest

from golden import TensorMap
from golden.capture import CaptureError, maps_of, number_bytes, text_maps

PLAIN = TensorMap.tiled(
    "f16", 0x7F0000000000, (100, 16), (208,), (64, 8), swizzle="128B", l2_promotion="256B"
)
DATA = PLAIN.encode()
WORDS = struct.unpack("<32I", DATA)
LONGS = struct.unpack("<16Q", DATA)

GDB_WORDS = """\
(gdb) x/16wx &map
0x4040 <map>:\t0x00000000\t0x00007f00\t0x00066310\t0x0000000d
0x4050 <map+16>:\t0x00000000\t0x00000000\t0x00000000\t0x00000000
0x4060 <map+32>:\t0x00000063\t0x0000000f\t0x00000000\t0x00000000
0x4070 <map+48>:\t0x00000000\t0x3f000000\t0x00000007\t0x00000000
"""
GDB_MORE_WORDS = """\
0x4080 <map+64>:\t0x00000400\t0x00000000\t0x00000400\t0x00000000
0x4090 <map+80>:\t0x00000000\t0x00000000\t0x00000000\t0x00000000
0x40a0 <map+96>:\t0x00000000\t0x00000000\t0x00000000\t0x00000000
0x40b0 <map+112>:\t0x00000000\t0x00000000\t0x00000000\t0x00000000
"""
GDB_LONGS = """\
0x7fffffffe040:\t0x00007f0000000000\t0x0000000d00066310
0x7fffffffe050:\t0x0000000000000000\t0x0000000000000000
0x7fffffffe060:\t0x0000000f00000063\t0x0000000000000000
0x7fffffffe070:\t0x3f00000000000000\t0x0000000000000007
"""
GDB_BYTES = """\
0x4040 <std::maps<int>+8>:\t0x00\t0x00\t0x00\t0x00\t0x00\t0x7f\t0x00\t0x00
0x4048 <map+8>:\t0x10\t0x63\t0x06\t0x00\t0x0d\t0x00\t0x00\t0x00
0x4050 <map+16>:\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00
0x4058 <map+24>:\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00
0x4060 <map+32>:\t0x63\t0x00\t0x00\t0x00\t0x0f\t0x00\t0x00\t0x00
0x4068 <map+40>:\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00
0x4070 <map+48>:\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x3f
0x4078 <map+56>:\t0x07\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00
"""
GDB_HALVES = """\
0x4040 <map>:\t0x0000\t0x0000\t0x7f00\t0x0000\t0x6310\t0x0006\t0x000d\t0x0000
0x4050 <map+16>:\t0x0000\t0x0000\t0x0000\t0x0000\t0x0000\t0x0000\t0x0000\t0x0000
0x4060 <map+32>:\t0x0063\t0x0000\t0x000f\t0x0000\t0x0000\t0x0000\t0x0000\t0x0000
0x4070 <map+48>:\t0x0000\t0x0000\t0x0000\t0x3f00\t0x0007\t0x0000\t0x0000\t0x0000
"""
GDB_PRINT_HEX = (
    "$1 = {opaque = {0x7f0000000000, 0xd00066310, 0x0, 0x0, 0xf00000063, 0x0, "
    "0x3f00000000000000, 0x7, 0x400, 0x400, 0x0 <repeats 6 times>}}\n"
)
GDB_PRINT = (
    "$2 = {opaque = {139637976727552, 55834993424, 0, 0, 64424509539, 0, 4539628424389459968, 7, "
    "1024, 1024, 0, 0, 0, 0, 0, 0}}\n"
)
LLDB_BYTES = """\
(lldb) memory read --count 64 &map
0x100008000: 00 00 00 00 00 7f 00 00 10 63 06 00 0d 00 00 00  .........c......
0x100008010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  ................
0x100008020: 63 00 00 00 0f 00 00 00 00 00 00 00 00 00 00 00  c...............
0x100008030: 00 00 00 00 00 00 00 3f 07 00 00 00 00 00 00 00  .......?........
"""
HEXDUMP_C = """\
00000000  00 00 00 00 00 7f 00 00  10 63 06 00 0d 00 00 00  |.........c......|
00000010  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|
00000020  63 00 00 00 0f 00 00 00  00 00 00 00 00 00 00 00  |c...............|
00000030  00 00 00 00 00 00 00 3f  07 00 00 00 00 00 00 00  |.......?........|
00000040  00 04 00 00 00 00 00 00  00 04 00 00 00 00 00 00  |................|
00000050  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|
*
00000080
"""
HEXDUMP = """\
0000000 0000 0000 7f00 0000 6310 0006 000d 0000
0000010 0000 0000 0000 0000 0000 0000 0000 0000
0000020 0063 0000 000f 0000 0000 0000 0000 0000
0000030 0000 0000 0000 3f00 0007 0000 0000 0000
0000040 0400 0000 0000 0000 0400 0000 0000 0000
0000050 0000 0000 0000 0000 0000 0000 0000 0000
*
0000080
"""
XXD = """\
00000000: 0000 0000 007f 0000 1063 0600 0d00 0000  .........c......
00000010: 0000 0000 0000 0000 0000 0000 0000 0000  ................
00000020: 6300 0000 0f00 0000 0000 0000 0000 0000  c...............
00000030: 0000 0000 0000 003f 0700 0000 0000 0000  .......?........
00000040: 0004 0000 0000 0000 0004 0000 0000 0000  ................
00000050: 0000 0000 0000 0000 0000 0000 0000 0000  ................
00000060: 0000 0000 0000 0000 0000 0000 0000 0000  ................
00000070: 0000 0000 0000 0000 0000 0000 0000 0000  ................
"""
XXD_WORDS = """\
00000000: 00000000 00007f00 00066310 0000000d  .........c......
00000010: 00000000 00000000 00000000 00000000  ................
00000020: 00000063 0000000f 00000000 00000000  c...............
00000030: 00000000 3f000000 00000007 00000000  .......?........
"""
OD = """\
0000000 000000 000000 077400 000000 061420 000006 000015 000000
0000020 000000 000000 000000 000000 000000 000000 000000 000000
0000040 000143 000000 000017 000000 000000 000000 000000 000000
0000060 000000 000000 000000 037400 000007 000000 000000 000000
0000100 002000 000000 000000 000000 002000 000000 000000 000000
0000120 000000 000000 000000 000000 000000 000000 000000 000000
*
0000200
"""
OD_BYTES = """\
0000000 00 00 00 00 00 7f 00 00 10 63 06 00 0d 00 00 00  >.........c......<
0000020 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  >................<
0000040 63 00 00 00 0f 00 00 00 00 00 00 00 00 00 00 00  >c...............<
0000060 00 00 00 00 00 00 00 3f 07 00 00 00 00 00 00 00  >.......?........<
0000100
"""
OD_WORDS = """\
000000 00000000 00007f00 00066310 0000000d
000010 00000000 00000000 00000000 00000000
000020 00000063 0000000f 00000000 00000000
000030 00000000 3f000000 00000007 00000000
000040
"""
OD_LONGS = """\
0000000 00007f0000000000 0000000d00066310
0000020 0000000000000000 0000000000000000
0000040 0000000f00000063 0000000000000000
0000060 3f00000000000000 0000000000000007
0000100
"""
OD_OCTAL_BYTES = """\
0000000 000 000 000 000 000 177 000 000 020 143 006 000 015 000 000 000
0000016 000 000 000 000 000 000 000 000 000 000 000 000 000 000 000 000
0000032 143 000 000 000 017 000 000 000 000 000 000 000 000 000 000 000
0000048 000 000 000 000 000 000 000 077 007 000 000 000 000 000 000 000
0000064
"""
PRINTED = {
    "gdb x/16wx": GDB_WORDS,
    "gdb x/32wx": GDB_WORDS + GDB_MORE_WORDS,
    "gdb x/8gx": GDB_LONGS,
    "gdb x/64xb": GDB_BYTES,
    "gdb x/32xh": GDB_HALVES,
    "gdb p/x": GDB_PRINT_HEX,
    "gdb p": GDB_PRINT,
    "lldb memory read": LLDB_BYTES,
    "hexdump -C": HEXDUMP_C,
    "hexdump -C without its text": "\n".join(line[:58] for line in HEXDUMP_C.splitlines()),
    "hexdump": HEXDUMP,
    "xxd": XXD,
    "xxd -u": XXD.upper(),
    "xxd -e": XXD_WORDS,
    "xxd -p": f"{DATA.hex()[:60]}\n{DATA.hex()[60:]}\n",
    "xxd -i": f"unsigned char map[] = {{\n {', '.join(map(hex, DATA))}\n}};\nunsigned int n = 128;",
    "od": OD,
    "od -t x1z": OD_BYTES,
    "od -A x -t x4": OD_WORDS,
    "od -t x8": OD_LONGS,
    "od -A d -b": OD_OCTAL_BYTES,
    "digits": DATA.hex(),
    "one number": f"0x{DATA.hex().upper()}",
    "bytes": DATA.hex(" "),
    "groups of 4 bytes": DATA.hex(" ", 4),
    "lines of 4 words": "\n".join(DATA[at : at + 16].hex(" ", 4) for at in range(0, 128, 16)),
    "bytes with 0x": ", ".join(f"0x{byte:02x}" for byte in DATA),
    "words with 0x": " ".join(f"0x{word:08x}" for word in WORDS),
    "words in C": "{" + ",\n ".join(f"0x{word:X}u" for word in WORDS) + "};",
    "longs in C": ", ".join(f"{long:#x}ULL" for long in LONGS),
    "byte order mark": "\ufeff" + GDB_WORDS,
    "carriage returns": GDB_WORDS.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("form", PRINTED)
def test_every_printed_form_is_the_same_map(form):
    (data,) = maps_of(PRINTED[form].encode())
    assert data == DATA[: len(data)]
    assert len(data) in (64, 128)


@pytest.mark.parametrize(
    "array",
    [
        np.frombuffer(DATA, "u1"),
        np.frombuffer(DATA, "<u4"),
        np.frombuffer(DATA, "<u4").astype(">u4"),
        np.frombuffer(DATA, "<u8"),
        np.frombuffer(DATA, "<i4"),
        np.array(WORDS),
        np.array([DATA], "V128"),
        np.frombuffer(DATA, "<u4").reshape(4, 8),
    ],
)
def test_arrays(array):
    file = io.BytesIO()
    np.save(file, array)
    assert maps_of(file.getvalue()) == [DATA]


def test_several_maps():
    other = TensorMap.tiled("u8", 0, (64,), (), (64,)).encode()
    assert maps_of(DATA + other) == [DATA, other]
    assert maps_of(DATA[:64]) == [DATA[:64]]
    file = io.BytesIO()
    np.save(file, np.frombuffer(DATA + other, "<u4").reshape(2, 32))
    assert maps_of(file.getvalue()) == [DATA, other]
    assert text_maps(GDB_PRINT_HEX + GDB_PRINT) == [DATA, DATA]
    assert text_maps(GDB_WORDS + GDB_LONGS) == [DATA[:64]] * 2
    assert text_maps(OD_LONGS + OD_LONGS) == [DATA[:64]] * 2
    array = GDB_PRINT_HEX.replace("$1 = ", "$3 = {")[:-1] + ", " + GDB_PRINT_HEX[5:-1] + "}"
    assert text_maps(array) == [DATA, DATA]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty: must be a tensor map of 64 bytes, or a multiple of 128 bytes"),
        ("(gdb) x/16wx &map", "empty: must be a tensor map"),
        (DATA.hex() + "00", "129 bytes: must be 64 bytes, or a multiple of 128 bytes"),
        (GDB_WORDS + GDB_MORE_WORDS[:60], "80 bytes: must be 64 bytes, or a multiple of 128"),
        (GDB_WORDS.replace("0x4060", "0x4068"), "part 1 has 32 bytes: must be 64 bytes, or"),
        (GDB_WORDS.replace("0x00007f00", "32512"), "line 1: '32512': must be hexadecimal numbers"),
        (GDB_WORDS.replace("0x00007f00", "<error>"), "line 1: '<error>': must be hexadecimal"),
        (GDB_WORDS + "Cannot access memory", "line 5: 'cannot access memory': must begin with an"),
        (HEXDUMP_C.replace("00000080", ""), "the last line is *: the offset that ends the dump"),
        (HEXDUMP_C.replace("00000080", "00000058"), "00000058 does not end the rows that * rep"),
        (HEXDUMP_C.replace("00000080", "ffffffff"), "ffffffff does not end the rows that * rep"),
        ("\n".join(HEXDUMP_C.splitlines()[1:]), "112 bytes: must be 64 bytes, or a multiple"),
        (GDB_PRINT_HEX.replace("<repeats 6", "<repeats 999999999"), "must be a number of 64 bits"),
        (GDB_PRINT_HEX.replace("0x7,", "0x70000000000000000,"), "must be a number of 64 bits"),
        (GDB_PRINT_HEX.replace("0x7,", "seven,"), "'seven': must be a number of 64 bits"),
        (GDB_PRINT_HEX.replace("0x7, ", ""), "120 bytes: must be 64 bytes, or a multiple"),
        ("hello", "'hello': must be hexadecimal digits"),
    ],
)
def test_text_that_is_no_map(text, message):
    with pytest.raises(CaptureError) as caught:
        text_maps(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_row_that_is_missing_is_not_taken_for_data():
    """Without a row in the middle, no part of a dump has the size of a map."""
    for form in ("gdb x/32wx", "hexdump -C", "hexdump", "xxd", "od", "od -t x8", "od -A x -t x4"):
        lines = [line for line in PRINTED[form].splitlines() if not line.startswith("(")]
        for at in range(1, 3):
            with pytest.raises(CaptureError, match="must be 64 bytes"):
                text_maps("\n".join(lines[:at] + lines[at + 1 :]))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(16), "the array holds float64: must hold integers"),
        (np.array([None]), "the array holds Python objects: must hold numbers or text"),
        (np.zeros(16, bool), "the array holds bool: must hold integers"),
        (np.zeros(33, "u4"), "132 bytes: must be 64 bytes, or a multiple of 128 bytes"),
        (np.zeros(0, "u8"), "0 bytes: must be 64 bytes, or a multiple of 128 bytes"),
    ],
)
def test_arrays_that_are_no_map(array, message):
    file = io.BytesIO()
    np.save(file, array)
    with pytest.raises(CaptureError) as caught:
        maps_of(file.getvalue())
    assert str(caught.value) == message


def test_bytes_that_are_blanks_in_other_encodings():
    for byte in (0xA0, 0x85, 0x1C, 0x00, 0x7F):
        assert maps_of(bytes([byte]) * 64) == [bytes([byte]) * 64]


def test_an_array_that_is_cut_off():
    file = io.BytesIO()
    np.save(file, np.frombuffer(DATA, "u1"))
    for size in (6, 50, 200):
        with pytest.raises(CaptureError, match="the array is damaged"):
            maps_of(file.getvalue()[:size])


def test_numbers_and_bytes():
    assert number_bytes("0x1 0x2") == bytes([1, 0, 0, 0, 2, 0, 0, 0])
    assert number_bytes("0x1, 0x123456789") == struct.pack("<2Q", 1, 0x123456789)
    assert number_bytes("01 02") == number_bytes("0102") == bytes([1, 2])
    assert number_bytes(" 0x01" * 64) == bytes([1]) * 64
