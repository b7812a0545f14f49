"""Pictures of loads, and the bank conflicts that they show."""

from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

from golden import AccessMode, Arch, Load, TensorMap, TmaError
from golden.__main__ import main
from golden.banks import conflicts
from golden.draw import DPI, SIZE, draw, save

ROWS = 128 * np.arange(8)[:, None]
TILE = ["--dtype", "bf16", "--dim", "256,256", "--box", "64,64"]
IM2COL = TensorMap.im2col(
    *("f16", 0, (64, 14, 9, 64), (128, 1792, 16128)), (-1, -2), (-3, 1), 64, 96, swizzle="128B"
)
WIDE = TensorMap.im2col(
    *("u8", 0, (64, 9, 9), (64, 576), (0,), (0,), 64, 32),
    swizzle="64B",
    wide=True,
    arch=Arch.SM_100A,
)


def texts(figure):
    """Return all texts of a picture, panel by panel."""
    found = [text.get_text() for text in figure.texts]
    found += [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    for ax in figure.axes:
        found += [text.get_text() for text in ax.texts]
        legend = ax.get_legend()
        found += [text.get_text() for text in legend.get_texts()] if legend else []
    return found


def cells(figure):
    """Return the label of each place in shared memory: (line, column)."""
    ax = figure.axes[1]
    return {
        (int(y), int(x)): text.get_text()
        for text in ax.texts
        for x, y in [text.get_position()]
        if x % 1 == y % 1 == 0.5
    }


def test_row_pitch_of_128_without_swizzle():
    counts = conflicts(ROWS)
    assert counts.shape == (1, 1, 8)
    assert counts.tolist() == [[[8, 0, 0, 0, 0, 0, 0, 0]]]


def test_swizzle_of_128_spreads_every_column():
    addresses = ROWS + 16 * np.arange(8)
    counts = conflicts(addresses ^ (addresses >> 3 & 0x70))
    assert counts.tolist() == [[[1] * 8] * 8]


def test_swizzle_of_32_leaves_conflicts():
    assert conflicts(ROWS ^ (ROWS >> 3 & 0x10)).tolist() == [[[4, 4, 0, 0, 0, 0, 0, 0]]]


def test_reads_are_8_rows_at_a_time():
    addresses = 16 * np.arange(20)[:, None]
    counts = conflicts(addresses)
    assert counts.max(axis=-1).tolist() == [[1], [1], [1]]
    assert counts.sum(axis=-1).tolist() == [[8], [8], [4]]


@pytest.mark.parametrize(
    ("swizzle", "entries"),
    [
        ("128B", ["SWIZZLE_128B: 64 wavefronts in all", "no swizzle: 512 wavefronts in all"]),
        ("none", ["no swizzle: 512 wavefronts in all"]),
    ],
)
def test_wavefronts(swizzle, entries):
    tensor_map = TensorMap.tiled("bf16", 0, (256, 256), (512,), (64, 64), swizzle=swizzle)
    figure = draw(Load(tensor_map, (0, 0)))
    ax = figure.axes[2]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == entries
    heights = [bar.get_height() for bar in ax.patches]
    assert heights == ([1] * 8 + [8] * 8 if swizzle == "128B" else [8] * 8)


def test_cells_of_a_swizzled_box():
    tensor_map = TensorMap.tiled("bf16", 0, (256, 256), (512,), (64, 64), swizzle="128B")
    found = cells(draw(Load(tensor_map, (0, 0), smem_address=128)))
    assert len(found) == 32 * 8
    for line in range(32):
        for column in range(8):
            assert found[line, column] == f"{line}·{column ^ (line + 1) % 8}"


def test_cells_with_gaps():
    tensor_map = TensorMap.tiled("u8", 0, (64, 8), (64,), (32, 3), swizzle="64B")
    found = cells(draw(Load(tensor_map, (0, 0))))
    top = {(0, 0): "0·0", (0, 1): "0·1", (0, 4): "1·0", (0, 5): "1·1"}
    assert found == top | {(1, 1): "2·0", (1, 0): "2·1"}


def test_fill_is_hatched():
    tensor_map = TensorMap.tiled("u8", 0, (40, 4), (48,), (64, 4))

    def hatched(request):
        return sum(patch.get_hatch() is not None for patch in draw(request).axes[1].patches)

    assert hatched(Load(tensor_map, (-16, 0))) == 8  # piece 0 and half of piece 3
    assert hatched(Load(tensor_map, (0, -1))) == 10  # row 0, and pieces 2 and 3 of the others
    assert hatched(Load(tensor_map, (0, 4))) == 16


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (
            Load(IM2COL, (0, -1, -2, 63), im2col_offsets=(2, 1)),
            ["image = 63; all pixels, in order", "bounding box, moved by the offsets", "95"],
        ),
        (
            Load(IM2COL, (0, 10, 9, 63)),
            ["image = 63; 1 of 96 pixels, in order; part of the tensor", "bounding box"],
        ),
        (
            Load(
                TensorMap.tiled(
                    *("f16", 0, (20, 12, 8, 4), (320, 3840, 30720), (8, 6, 1, 2)), interleave="16B"
                ),
                (14, -2, 3, 1),
            ),
            ["dimension 2 = 3, dimension 3 = 1; 48 of 96 rows of the box"],
        ),
        (
            Load(TensorMap.tiled("f32", 0, (100,), (), (64,), oob_fill="nan"), (64,)),
            ["TILE load of box 64 at (64)", "all rows of the box", "filled with NaN"],
        ),
        (
            Load(TensorMap.tiled("u64", 0, (4096, 64), (32768,), (256, 64)), (0, 0)),
            ["row·piece in each 16 bytes of the first 32 of 1024 lines; left: address; top: banks"],
        ),
    ],
)
def test_texts_of_the_picture(request_, words):
    said = "\n".join(texts(draw(request_)))
    for word in words:
        assert word in said


def test_modes_after_hopper():
    matrix = TensorMap.tiled("bf16", 0, (64, 64), (128,), (64, 1), arch=Arch.SM_100A)
    figure = draw(Load(matrix, (0, 9, 1, 70, 3), mode=AccessMode.TILE_GATHER4), Arch.SM_100A)
    assert cells(figure)[3, 7] == "3·7"
    assert "all rows of the box" in texts(figure)


def test_texts_are_inside_the_picture_and_do_not_overlap():
    figure = draw(Load(IM2COL, (0, -1, -2, 7), im2col_offsets=(2, 1), smem_address=0x4000))
    renderer = figure.canvas.get_renderer()
    width, height = figure.canvas.get_width_height()
    titles = [*figure.texts, *(text for ax in figure.axes for text in ax.texts[-2:])]
    legends = [*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())]
    boxes = [item.get_window_extent(renderer) for item in (*titles, *legends)]
    for n, box in enumerate(boxes):
        assert min(box.x0, box.y0) >= 0
        assert box.x1 <= width
        assert box.y1 <= height
        assert not any(box.overlaps(other) for other in boxes[:n])


def test_refusals():
    tensor_map = TensorMap.tiled("bf16", 0, (256, 256), (512,), (64, 64))
    for request in (
        Load(tensor_map, (1, 0)),
        Load(tensor_map, (0, 0), smem_address=64),
        Load(tensor_map, (0, 0, 0)),
        Load(tensor_map, (0, 0), im2col_offsets=(1,)),
        Load(bytes([255] * 128), (0, 0)),
    ):
        with pytest.raises(TmaError):
            draw(request)


@pytest.mark.parametrize(
    "options",
    [
        [*TILE, "--swizzle", "128B", "--coords", "-64,0", "--smem-address", "0x400"],
        [IM2COL.encode().hex(), "--coords", "0,-1,-2,7", "--offsets", "2,1"],
        [
            WIDE.encode().hex(),
            *("--arch", "sm_100a", "--coords", "0,1,2"),
        ],
        [
            *("--dtype", "f16", "--dim", "64,14,9,64", "--channels", "64", "--pixels", "96"),
            *("--swizzle", "128B", "--lower-corner", "-1,-2", "--upper-corner", "-3,1"),
            *("--coords", "0,-1,-2,7", "--offsets", "2,1"),
        ],
    ],
)
def test_file(tmp_path, capsys, options):
    path = tmp_path / "box.png"
    assert main(["draw", *options, "-o", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    picture = imread(path)
    assert picture.shape[:2] == (SIZE[1] * DPI, SIZE[0] * DPI)
    assert len(np.unique(picture[::4, ::4, :3].sum(axis=-1))) > 50
    again = tmp_path / "again.png"
    assert main(["draw", *options, "-o", str(again)]) == 0
    assert again.read_bytes() == path.read_bytes()


def test_svg(tmp_path):
    """A picture gives the same file again: an SVG with all that is drawn."""
    figure = draw(Load(TensorMap.tiled("u8", 0, (64, 8), (64,), (32, 3)), (0, 0)))
    paths = [tmp_path / name for name in ("a.svg", "b.SVG")]
    for path in paths:
        save(figure, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    root = ElementTree.parse(paths[0]).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 100
    with pytest.raises(ValueError, match=r"a\.pdf: must end in \.png or \.svg"):
        save(figure, tmp_path / "a.pdf")


def colours_of_the_box(extents, coords):
    """Return the number of colours in the panel of the tensor, and the share of hatched pixels."""
    strides = (2 * extents[0],)
    tensor_map = TensorMap.tiled("bf16", 0, extents, strides, (64, 32))
    figure = draw(Load(tensor_map, coords))
    figure.canvas.draw()
    box = figure.axes[0].get_window_extent()
    pixels = np.asarray(figure.canvas.buffer_rgba())[::-1]
    panel = pixels[int(box.y0) : int(box.y1), int(box.x0) : int(box.x1), :3].reshape(-1, 3)
    hatched = (panel == (0xD5, 0x5E, 0x00)).all(axis=1).mean()
    return len(np.unique(panel, axis=0)), hatched


@pytest.mark.parametrize("log", [10, 30, 32])
def test_large_extents(log):
    """A box inside a tensor of any extent is drawn in the colours of its rows, without hatching."""
    extents, start = (1 << log, 1 << log), min(1 << (log - 1), (1 << 31) - 64)
    colours, hatched = colours_of_the_box(extents, (start, start))
    assert colours >= 32
    assert hatched == 0


@pytest.mark.parametrize(
    ("coords", "note"),
    [
        ((192, 100), None),
        ((256, 0), "the tensor ends at 256 in dimension 0, the box starts at 256"),
        ((-64, 0), "the tensor begins at 0 in dimension 0, the box ends at 0"),
        (
            (1 << 30, -40),
            "the tensor ends at 256 in dimension 0, the box starts at 1073741824; "
            "the tensor begins at 0 in dimension 1, the box ends at -8",
        ),
    ],
)
def test_a_box_outside_says_where_the_tensor_is(coords, note):
    tensor_map = TensorMap.tiled("bf16", 0, (256, 256), (512,), (64, 32))
    said = texts(draw(Load(tensor_map, coords)))
    outside = [text for text in said if text.startswith("the box is outside: ")]
    assert outside == ([f"the box is outside: {note}"] if note else [])


def test_rows_between_which_the_tensor_lies():
    """No row is inside, but the tensor does not lie to one side of the box."""
    tensor_map = TensorMap.tiled("u8", 0, (64, 1), (64,), (64, 4), (1, 2))
    said = texts(draw(Load(tensor_map, (0, -1))))
    assert "the box is outside: no row of it is in the tensor" in said


def test_map_from_parameters_equals_map_from_bytes(tmp_path):
    """Default strides are those of a dense tensor whose rows are padded to 16 bytes."""
    parts = ["--dtype", "u8", "--dim", "20,5,3", "--box", "16,4,2", "--coords", "0,2,1"]
    tensor_map = TensorMap.tiled("u8", 0, (20, 5, 3), (32, 160), (16, 4, 2))
    bytes_ = [tensor_map.encode().hex(), "--coords", "0,2,1"]
    for name, options in (("parts.png", parts), ("bytes.png", bytes_)):
        assert main(["draw", *options, "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / "parts.png").read_bytes() == (tmp_path / "bytes.png").read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([*TILE, "--coords", "5,0"], "coords[0] = 5 starts at byte 10: must be a multiple of 16"),
        ([*TILE, "--coords", "0,0", "--smem-address", "64"], "smem_address = 64: must be a mult"),
        ([*TILE, "--coords", "0"], "len(coords) = 1: must be 2"),
        ([*TILE, "--coords", "0,0", "--swizzle", "96B"], "swizzle = SWIZZLE_96B: the 96-byte"),
        ([*TILE, "--coords", "0,0", "--swizzle", "1B"], "swizzle = 1B: must be from 0 to 7"),
        ([*TILE, "--coords", "0,0", "--strides", "500"], "global_strides[0] = 500: must be a mul"),
        ([*TILE[:4], "--coords", "0,0"], "no map and no --box"),
        (["00", "--coords", "0,0"], "1 bytes: must be 64 bytes, or a multiple of 128"),
        (["00" * 256, "--coords", "0,0"], "2 tensor maps: MAP must be one"),
        (["", "--coords", "0,0"], "MAP is empty: must be the name of a file, or hexadecimal text"),
        (["00", *TILE, "--coords", "0,0"], "--dtype bf16: must not be given together with MAP"),
        ([*TILE, "--coords", "0,0", "--dtype", "f8"], "f8: must be one of UINT8"),
        ([*TILE, "--coords", "0,0", "-o", "/none/box.png"], "No such file or directory"),
        ([*TILE, "--coords", "0,0", "-o", "a.txt"], "a.txt: must end in .png or .svg"),
        ([*TILE, "--coords", "0,0", "-o", "box"], "box: must end in .png or .svg"),
    ],
)
def test_an_error_is_one_line(capsys, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    assert main(["draw", *options]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"golden draw: {message}") or message in captured.err
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [[], ["--coords", "a,b"], ["--coords"]])
def test_usage(options):
    with pytest.raises(SystemExit) as caught:
        main(["draw", *TILE, *options])
    assert caught.value.code == 2
