"""Tensor maps: the 128 bytes that CUDA's driver writes, and what it accepts.

Arrays are innermost dimension first; strides are in bytes. Everything here agrees with what the
driver did on silicon, also where its documentation says otherwise.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from golden.arrays import described
from golden.descriptor import CORNER_BITS, WORDS, Descriptor
from golden.enums import (
    MAX_RANK,
    SMEM_BYTES,
    Arch,
    DataType,
    Interleave,
    L2Promotion,
    MapMode,
    Named,
    OobFill,
    Swizzle,
)
from golden.errors import ErrorCode, TmaError, require
from golden.map_rules import check_map, row_bytes

EnumT = TypeVar("EnumT", bound=Named)

_SPAN_WORDS = (0x10, 0x100, 0x200, 0x400)


def _member(kind: type[EnumT], code: ErrorCode, value: int | str) -> EnumT:
    try:
        return kind.member(value)
    except ValueError:
        parameter = code.name.lower()
        last = int(max(kind))
        limit = f"must be from 0 to {last}, or one of {', '.join(item.name for item in kind)}"
        number = value if isinstance(value, int) else 0
        raise TmaError(code, parameter, number, limit, shown=str(value)) from None


def _integers(name: str, values: Sequence[int], length: int) -> tuple[int, ...]:
    limit = f"must be {length}"
    require(len(values) == length, ErrorCode.LENGTH, f"len({name})", len(values), limit)
    return tuple(int(value) for value in values)


def entries(values: Sequence[int]) -> str:
    """A tuple as people write it, also of one entry."""
    return f"({', '.join(map(str, values))})"


def _rank(global_dim: Sequence[int]) -> int:
    """Number of dimensions: of all parameters the first to be looked at."""
    rank = len(global_dim)
    limit = f"must be from 1 to {MAX_RANK}"
    require(1 <= rank <= MAX_RANK, ErrorCode.RANK, "rank", rank, limit)
    return rank


@dataclass(frozen=True)
class TensorMap:
    """A tensor map that the driver's encoder accepts; see ``tiled``, ``im2col``, ``from_array``.

    Tuples have ``rank`` entries, ``global_strides`` one less, corners two less (W first). Equal
    maps have equal bytes, and ``TensorMap.decode(map.encode()) == map``.

    Examples
    --------
    >>> tensor_map = TensorMap.tiled("f16", 0x7F0000000000, (16, 16), (32,), (16, 8))
    >>> hex(Descriptor.from_bytes(tensor_map.encode()).words[2])
    '0x310'
    >>> print(tensor_map)
    rank-2 tiled map of FLOAT16
      global_address   0x7f0000000000
      global_dim       (16, 16)  elements, innermost first
      global_strides   (32)  bytes
      box_dim          (16, 8)  = 256 bytes of shared memory
      element_strides  (1, 1)
      interleave       NONE
      swizzle          NONE
      l2_promotion     NONE
      oob_fill         NONE
    """

    data_type: DataType
    global_address: int
    global_dim: tuple[int, ...]
    global_strides: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: Interleave = Interleave.NONE
    swizzle: Swizzle = Swizzle.NONE
    l2_promotion: L2Promotion = L2Promotion.NONE
    oob_fill: OobFill = OobFill.NONE
    mode: MapMode = MapMode.TILE
    box_dim: tuple[int, ...] = ()
    lower_corner: tuple[int, ...] = ()
    upper_corner: tuple[int, ...] = ()
    channels_per_pixel: int = 0
    pixels_per_column: int = 0
    wide: bool = False

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.global_dim)

    @classmethod
    def tiled(
        cls,
        data_type: DataType | int | str,
        global_address: int,
        global_dim: Sequence[int],
        global_strides: Sequence[int],
        box_dim: Sequence[int],
        element_strides: Sequence[int] | None = None,
        *,
        interleave: Interleave | int | str = Interleave.NONE,
        swizzle: Swizzle | int | str = Swizzle.NONE,
        l2_promotion: L2Promotion | int | str = L2Promotion.NONE,
        oob_fill: OobFill | int | str = OobFill.NONE,
        arch: Arch = Arch.SM_90A,
    ) -> "TensorMap":
        """Check as ``cuTensorMapEncodeTiled`` does (silicon).

        Parameters
        ----------
        data_type : DataType
            Or its number or name, as for all enumerations: ``"bf16"``.
        global_address : int
            Byte address of the tensor, a multiple of 16 (32 with 32-byte interleave).
        global_dim : sequence of 1 to 5
            Elements, each 1 to 2**32.
        global_strides : sequence, one shorter
            Bytes from an index of dimension 1, 2, ... to the next; multiples of 16, below 2**40.
        box_dim : sequence
            Elements, each 1 to 256.
        element_strides : sequence
            1 to 8; default 1.
        interleave : Interleave
            Slices of channels; of rank 3 and more.
        swizzle : Swizzle
            Limits the row of a map without interleave to its span.
        l2_promotion : L2Promotion
            A hint.
        oob_fill : OobFill
            NaN with float types only.
        arch : Arch
            ``SM_100A`` adds sub-byte types and swizzles (PTX ISA).

        Raises
        ------
        TmaError
            Where the driver answers with an invalid value.
        """
        tensor_map = cls._common(
            MapMode.TILE, data_type, global_address, global_dim, global_strides, element_strides,
            interleave, swizzle, l2_promotion, oob_fill,
            box_dim=_integers("box_dim", box_dim, _rank(global_dim)),
        )  # fmt: skip
        for i, extent in enumerate(tensor_map.box_dim):
            limit = "must be from 1 to 256"
            name = f"box_dim[{i}]"
            require(1 <= extent <= 256, ErrorCode.BOX_DIM, name, extent, limit, dim=i)
        check_map(Descriptor.from_bytes(tensor_map.encode()), arch)
        size = tensor_map._smem_bytes()
        require(
            size <= SMEM_BYTES,
            ErrorCode.BOX_BYTES,
            "box_dim",
            size,
            f"must be at most {SMEM_BYTES} bytes of shared memory",
            shown=f"{tensor_map.box_dim}, {size} bytes",
        )
        return tensor_map

    @classmethod
    def im2col(
        cls,
        data_type: DataType | int | str,
        global_address: int,
        global_dim: Sequence[int],
        global_strides: Sequence[int],
        lower_corner: Sequence[int],
        upper_corner: Sequence[int],
        channels_per_pixel: int,
        pixels_per_column: int,
        element_strides: Sequence[int] | None = None,
        *,
        interleave: Interleave | int | str = Interleave.NONE,
        swizzle: Swizzle | int | str = Swizzle.NONE,
        l2_promotion: L2Promotion | int | str = L2Promotion.NONE,
        oob_fill: OobFill | int | str = OobFill.NONE,
        wide: bool = False,
        arch: Arch = Arch.SM_90A,
    ) -> "TensorMap":
        """Check as ``cuTensorMapEncodeIm2col`` does (silicon).

        Parameters as of ``tiled``, and:

        lower_corner, upper_corner : sequences of rank - 2, W first
            The bounding box of start positions relative to the tensor.
        channels_per_pixel : int
            1 to 256.
        pixels_per_column : int
            1 to 1024.
        wide : bool
            For ``im2col::w``: corners of W alone, 16 bits each, as ``cuTensorMapEncodeIm2colWide``
            takes them (cuda.h; its place in the map: choice). ``SM_100A`` only.

        Raises
        ------
        TmaError
            Where the driver answers with an invalid value.
        """
        spatial = 1 if wide else max(_rank(global_dim) - 2, 0)
        tensor_map = cls._common(
            MapMode.IM2COL, data_type, global_address, global_dim, global_strides, element_strides,
            interleave, swizzle, l2_promotion, oob_fill,
            lower_corner=_integers("lower_corner", lower_corner, spatial),
            upper_corner=_integers("upper_corner", upper_corner, spatial),
            channels_per_pixel=int(channels_per_pixel),
            pixels_per_column=int(pixels_per_column),
            wide=wide,
        )  # fmt: skip
        channels, pixels = tensor_map.channels_per_pixel, tensor_map.pixels_per_column
        for code, value, most in (
            (ErrorCode.CHANNELS_PER_PIXEL, channels, 256),
            (ErrorCode.PIXELS_PER_COLUMN, pixels, 1024),
        ):
            limit = f"must be from 1 to {most}"
            require(1 <= value <= most, code, code.name.lower(), value, limit)
        check_map(Descriptor.from_bytes(tensor_map.encode()), arch)
        tensor_map._check_corners()
        return tensor_map

    @classmethod
    def _common(
        cls,
        mode: MapMode,
        data_type: DataType | int | str,
        global_address: int,
        global_dim: Sequence[int],
        global_strides: Sequence[int],
        element_strides: Sequence[int] | None,
        interleave: Interleave | int | str,
        swizzle: Swizzle | int | str,
        l2_promotion: L2Promotion | int | str,
        oob_fill: OobFill | int | str,
        **rest: Any,
    ) -> "TensorMap":
        """Take the parameters that both encoders share and see that each is in its range."""
        rank = _rank(global_dim)
        tensor_map = cls(
            data_type=_member(DataType, ErrorCode.DATA_TYPE, data_type),
            global_address=int(global_address),
            global_dim=_integers("global_dim", global_dim, rank),
            global_strides=_integers("global_strides", global_strides, rank - 1),
            element_strides=_integers("element_strides", element_strides or (1,) * rank, rank),
            interleave=_member(Interleave, ErrorCode.INTERLEAVE, interleave),
            swizzle=_member(Swizzle, ErrorCode.SWIZZLE, swizzle),
            l2_promotion=_member(L2Promotion, ErrorCode.L2_PROMOTION, l2_promotion),
            oob_fill=_member(OobFill, ErrorCode.OOB_FILL, oob_fill),
            mode=mode,
            **rest,
        )
        tensor_map._check_address()
        for code, values, least, most, words, first in (
            (ErrorCode.GLOBAL_DIM, tensor_map.global_dim, 1, 1 << 32, "2**32", 0),
            (ErrorCode.GLOBAL_STRIDES, tensor_map.global_strides, 0, (1 << 40) - 1, "2**40 - 1", 1),
            (ErrorCode.ELEMENT_STRIDES, tensor_map.element_strides, 1, 8, "8", 0),
        ):
            for i, value in enumerate(values):
                name, limit = f"{code.name.lower()}[{i}]", f"must be from {least} to {words}"
                require(least <= value <= most, code, name, value, limit, dim=i + first)
        return tensor_map

    def _check_address(self) -> None:
        address, name = self.global_address, "global_address"
        limit = "must be from 0 to 2**64 - 1"
        holds = 0 <= address < 1 << 64
        require(holds, ErrorCode.GLOBAL_ADDRESS, name, address, limit, shown=hex(address))

    def _check_corners(self) -> None:
        bits = 16 if self.wide else CORNER_BITS[self.rank]
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        first = 0 if self.interleave else 1
        for name, corner in (
            ("lower_corner", self.lower_corner),
            ("upper_corner", self.upper_corner),
        ):
            for j, value in enumerate(corner):
                limit = f"must be from {low} to {high} with rank {self.rank}"
                where = f"{name}[{j}]"
                holds = low <= value <= high
                require(holds, ErrorCode.CORNER, where, value, limit, dim=first + j)
        for j, (lower, upper) in enumerate(zip(self.lower_corner, self.upper_corner, strict=True)):
            # The driver adds in 32 bits.
            end = (self.global_dim[first + j] + upper + (1 << 31)) % (1 << 32) - (1 << 31)
            require(
                end - lower > 0,
                ErrorCode.BOUNDING_BOX,
                f"int32(global_dim[{first + j}] + upper_corner[{j}]) - lower_corner[{j}]",
                end - lower,
                "must be positive",
                dim=first + j,
            )

    def _elements(self) -> int:
        """Elements as the encoder counts them, which is not what a transfer moves (silicon)."""
        if self.mode is MapMode.IM2COL:
            return self.channels_per_pixel * self.pixels_per_column
        steps = zip(self.box_dim, self.element_strides, strict=True)
        return math.prod(extent // stride for extent, stride in steps)

    def _smem_bytes(self) -> int:
        """What ``_elements`` take up in shared memory."""
        return row_bytes(self.data_type, self._elements())

    def encode(self) -> bytes:
        """The 128 bytes that the driver writes (silicon)."""
        words = [0] * WORDS
        words[0] = self.global_address & 0xFFFFFFFF
        words[1] = self.global_address >> 32
        span, atom = self.swizzle.fields
        words[2] = (
            self.mode
            | (self.rank - 1) << 4
            | self.data_type.format << 7
            | self.interleave << 11
            | span << 13
            | self.oob_fill << 15
            | self.data_type.rounds << 16
            | self.l2_promotion << 17
            | atom << 19
            | self.wide << 22
        )
        for i, stride in enumerate(self.global_strides):
            words[3 + i] = stride >> 4 & 0xFFFFFFFF
            words[7] |= stride >> 36 << 4 * i
        for i in range(self.rank):
            words[8 + i] = self.global_dim[i] - 1
            words[13] |= (self.element_strides[i] - 1) << 3 * i
        if self.mode is MapMode.TILE:
            words[13] |= (self.box_dim[0] - 1) << 24
            for i, extent in enumerate(self.box_dim[1:]):
                words[14] |= (extent - 1) << 8 * i
        else:
            words[13] |= (self.channels_per_pixel - 1) << 24
            bits = 16 if self.wide else CORNER_BITS[self.rank]
            mask = (1 << bits) - 1
            for j, (lower, upper) in enumerate(
                zip(self.lower_corner, self.upper_corner, strict=True)
            ):
                words[14] |= (lower & mask) << bits * j | (upper & mask) << (16 + bits * j)
            words[15] = self.pixels_per_column - 1
        # Metadata that the unit does not read.
        words[16] = self._elements() * self.data_type.bits // 8 & 0xFFFFFFFF
        words[18] = _SPAN_WORDS[span]
        return struct.pack(f"<{WORDS}I", *words)

    @classmethod
    def decode(cls, data: bytes, *, arch: Arch = Arch.SM_90A) -> "TensorMap":
        """The map that ``data`` holds; printed, it is a captured ``CUtensorMap`` in words.

        Parameters
        ----------
        data : bytes
            128, of which the first 64 count.
        arch : Arch
            What may be in it.

        Raises
        ------
        TmaError
            If the encoder would not have written it. ``Descriptor`` takes anything.
        """
        fields = Descriptor.from_bytes(data)
        version = fields.version
        require(version == 0, ErrorCode.VERSION, "version", version, "must be 0")
        check_map(fields, arch)
        rank = fields.rank
        shared: dict[str, Any] = {
            "data_type": fields.data_type,
            "global_address": fields.global_address,
            "global_dim": fields.global_dim[:rank],
            "global_strides": fields.global_strides[: rank - 1],
            "element_strides": fields.element_strides[:rank],
            "interleave": fields.interleave,
            "swizzle": fields.swizzle,
            "l2_promotion": fields.l2_promotion,
            "oob_fill": fields.oob_fill,
            "arch": arch,
        }
        if fields.mode is MapMode.TILE:
            return cls.tiled(**shared, box_dim=fields.box_dim[:rank])
        return cls.im2col(
            **shared,
            lower_corner=fields.lower_corner,
            upper_corner=fields.upper_corner,
            channels_per_pixel=fields.channels_per_pixel,
            pixels_per_column=fields.pixels_per_column,
            wide=fields.wide,
        )

    @classmethod
    def from_array(
        cls,
        array: object,
        box: Sequence[int],
        *,
        data_type: DataType | int | str | None = None,
        global_address: int | None = None,
        element_strides: Sequence[int] | None = None,
        swizzle: Swizzle | int | str = Swizzle.NONE,
        l2_promotion: L2Promotion | int | str = L2Promotion.NONE,
        oob_fill: OobFill | int | str = OobFill.NONE,
        arch: Arch = Arch.SM_90A,
    ) -> "TensorMap":
        """A tiled map of an array in memory: its address, extents, strides and type.

        Parameters
        ----------
        array : array_like
            A NumPy array of any strides that a map can say, of NumPy's or ``ml_dtypes``' types; or
            anything with ``__array_interface__`` or DLPack. Its last axis is dimension 0.
        box : sequence of int
            Elements of the box, **innermost first**, as everywhere here: the reverse of the
            array's shape. ``(64, 128)`` is 128 rows of 64 elements.
        data_type : DataType, optional
            Another type of the same size.
        global_address : int, optional
            Where the tensor lies for the unit; the array's own address if not given.
        element_strides, swizzle, l2_promotion, oob_fill, arch
            As for ``tiled``.

        Raises
        ------
        TmaError
            ARRAY if no map can describe the array, or as ``tiled`` raises.

        Examples
        --------
        >>> import ml_dtypes, numpy as np
        >>> array = np.zeros((512, 1024), ml_dtypes.bfloat16)
        >>> tensor_map = TensorMap.from_array(array, box=(64, 128), swizzle="128B")
        >>> tensor_map.global_dim, tensor_map.global_strides, tensor_map.box_dim
        ((1024, 512), (2048,), (64, 128))
        >>> TensorMap.from_array(array[::2, 64:192], box=(64, 128)).global_strides
        (4096,)
        """
        kind, address, dim, strides = described(array, data_type)
        if global_address is not None:
            address = global_address
        hints: dict[str, Any] = {"swizzle": swizzle, "arch": arch}
        hints |= {"l2_promotion": l2_promotion, "oob_fill": oob_fill}
        try:
            return cls.tiled(kind, address, dim, strides, box, element_strides, **hints)
        except TmaError as error:
            turned = tuple(box)[::-1]
            try:
                cls.tiled(kind, address, dim, strides, turned, element_strides, **hints)
            except TmaError:
                raise error from None
            error.add_note(f"box is innermost first: {turned} would be accepted")
            raise

    def with_address(self, global_address: int) -> "TensorMap":
        """The same map of another tensor, as ``cuTensorMapReplaceAddress`` makes it.

        Raises
        ------
        TmaError
            GLOBAL_ADDRESS.
        """
        moved = replace(self, global_address=int(global_address))
        moved._check_address()
        check_map(Descriptor.from_bytes(moved.encode()), Arch.SM_100A)
        return moved

    def __str__(self) -> str:
        tile = self.mode is MapMode.TILE

        rows = {
            "global_address": hex(self.global_address),
            "global_dim": f"{entries(self.global_dim)}  elements, innermost first",
            "global_strides": f"{entries(self.global_strides)}  bytes",
        }
        size = self._smem_bytes()
        if tile:
            rows["box_dim"] = f"{entries(self.box_dim)}  = {size} bytes of shared memory"
        else:
            rows["channels_per_pixel"] = str(self.channels_per_pixel)
            rows["pixels_per_column"] = f"{self.pixels_per_column}  = {size} bytes of shared memory"
            rows["lower_corner"] = f"{entries(self.lower_corner)}  W first"
            rows["upper_corner"] = f"{entries(self.upper_corner)}  W first"
        rows["element_strides"] = entries(self.element_strides)
        for name in ("interleave", "swizzle", "l2_promotion", "oob_fill"):
            rows[name] = getattr(self, name).name
        width = max(map(len, rows))
        kind = "tiled" if tile else "wide im2col" if self.wide else "im2col"
        return "\n".join(
            [f"rank-{self.rank} {kind} map of {self.data_type.name}"]
            + [f"  {name:{width}}  {value}" for name, value in rows.items()]
        )
