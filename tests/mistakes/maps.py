"""Mistakes in the arguments of the encoders of tensor maps."""

import numpy as np

from golden import Arch, TensorMap
from tests.mistakes.form import Group, lint, refusal

GROUP = Group("Tensor maps")

MATRIX = {
    "data_type": "f16",
    "global_address": 0x7F0000000000,
    "global_dim": (1024, 512),
    "global_strides": (2048,),
    "box_dim": (64, 64),
    "swizzle": "128B",
    "l2_promotion": "256B",
}
"""Arguments of a map without errors and warnings: a matrix of 512 rows of 1024 elements."""

IMAGE = {
    "data_type": "f16",
    "global_address": 0x7F0000000000,
    "global_dim": (64, 14, 14, 8),
    "global_strides": (128, 1792, 25088),
    "lower_corner": (-1, -1),
    "upper_corner": (-1, -1),
    "channels_per_pixel": 64,
    "pixels_per_column": 64,
    "swizzle": "128B",
    "l2_promotion": "128B",
}
"""Arguments of an im2col map without errors and warnings: eight images of 14 x 14 pixels."""

GROUP.map(
    "row-pitch",
    "global_strides[0] = 2044: must be a multiple of 16",
    wrong=MATRIX | {"global_dim": (1022, 512), "global_strides": (2044,)},
    mended=MATRIX | {"global_dim": (1016, 512), "global_strides": (2048,)},
)
GROUP.map(
    "strides-in-elements",
    "global_strides[0] = 1024 is less than a row of 2048 bytes: rows overlap",
    wrong=MATRIX | {"global_strides": (1024,)},
    mended=MATRIX,
)
GROUP.map(
    "tensor-address",
    "global_address = 0x7f0000000002: must be a multiple of 16",
    wrong=MATRIX | {"global_address": 0x7F0000000002},
    mended=MATRIX | {"global_address": 0x7F0000000080},
)
GROUP.map(
    "empty-tensor",
    "global_dim[1] = 0: must be from 1 to",
    wrong=MATRIX | {"global_dim": (1024, 0)},
    mended=MATRIX | {"global_dim": (1024, 1)},
)
GROUP.map(
    "box-extent",
    "box_dim[1] = 512: must be from 1 to 256",
    wrong=MATRIX | {"box_dim": (64, 512)},
    mended=MATRIX | {"box_dim": (64, 256)},
)
GROUP.map(
    "box-row-alignment",
    "box_dim[0]*2 = 24 bytes: must be a multiple of 16",
    wrong=MATRIX | {"box_dim": (12, 64)},
    mended=MATRIX,
)
MATRIX_512_1024 = np.zeros((512, 1024), np.float16)
GROUP.check(
    "box-order",
    "box_dim[0]*2 = 256 bytes: must be at most 128 with SWIZZLE_128B",
    "box is innermost first: (64, 128) would be accepted",
    wrong=lambda: refusal(lambda: TensorMap.from_array(MATRIX_512_1024, (128, 64), swizzle="128B")),
    mended=lambda: refusal(
        lambda: TensorMap.from_array(MATRIX_512_1024, (64, 128), swizzle="128B")
    ),
)
GROUP.map(
    "box-bytes",
    "box_dim = (64, 256, 8), 262144 bytes: must be at most 233472 bytes of shared memory",
    wrong=MATRIX
    | {
        "global_dim": (1024, 512, 16),
        "global_strides": (2048, 1 << 20),
        "box_dim": (64, 256, 8),
    },
    mended=MATRIX
    | {
        "global_dim": (1024, 512, 16),
        "global_strides": (2048, 1 << 20),
        "box_dim": (64, 256, 4),
    },
)
GROUP.map(
    "nan-fill-of-integers",
    "oob_fill = NAN_REQUEST_ZERO_FMA: needs a float type, not UINT16",
    wrong=MATRIX | {"data_type": "u16", "oob_fill": 1},
    mended=MATRIX | {"data_type": "f16", "oob_fill": 1},
)
GROUP.map(
    "type-of-a-later-architecture",
    "data_type = PACKED_16U4_ALIGN8B: a type of 4 or 6 bits needs SM_100A",
    "not SM_90A",
    wrong=MATRIX | {"data_type": 13},
    mended=MATRIX | {"data_type": "u8", "global_dim": (512, 512), "box_dim": (128, 64)},
)
GROUP.map(
    "interleave-of-a-matrix",
    "rank = 2: must be from 3 to 5 with interleave",
    wrong=MATRIX | {"interleave": 1},
    mended=MATRIX,
)
GROUP.map(
    "element-stride-of-columns",
    "element_strides[0] = 2 has an effect with interleave only",
    wrong=MATRIX | {"element_strides": (2, 1)},
    mended=MATRIX | {"element_strides": (1, 2)},
)
GROUP.map(
    "im2col-channels",
    "channels_per_pixel*2 = 256 bytes: must be at most 128 with SWIZZLE_128B",
    wrong=IMAGE | {"channels_per_pixel": 128},
    mended=IMAGE,
)
GROUP.map(
    "im2col-corner",
    "upper_corner[0] = 130: must be from -128 to 127",
    wrong=IMAGE | {"upper_corner": (130, -1)},
    mended=IMAGE,
)


def with_large_bit(arguments, is_set):
    """Return the bytes of a map, with the bit of tensors of 128 KiB or more set or clear."""
    words = np.frombuffer(TensorMap.tiled(**arguments).encode(), "<u4").copy()
    words[2] |= is_set << 21
    return words.tobytes()


SMALL = MATRIX | {"global_dim": (1024, 32), "box_dim": (64, 32)}
GROUP.check(
    "bit-of-large-tensors",
    "w2[21] is set, but the tensor has 65536 bytes, less than 128 KiB",
    "clear the bit",
    wrong=lambda: lint(with_large_bit(SMALL, True), Arch.SM_100A),
    mended=lambda: lint(with_large_bit(SMALL, False), Arch.SM_100A),
)
