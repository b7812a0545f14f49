"""Tensor maps: the 128 bytes that CUDA's driver writes, and the parameters that it accepts.

Sequences are innermost dimension first; strides are in bytes. Acceptance and bytes agree with the
driver's on silicon, also where the driver's documentation differs.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from golden.arch import EVERY_FEATURE, Arch
from golden.arrays import array_layout
from golden.descriptor import CORNER_BITS, READ_BYTES, WORDS, Descriptor
from golden.enums import (
    MAX_RANK,
    SMEM_BYTES,
    DataType,
    Interleave,
    L2Promotion,
    MapMode,
    Named,
    OobFill,
    Swizzle,
)
from golden.errors import ErrorCode, TmaError, require
from golden.fields import integer, integers, member, sequence, tuple_text
from golden.map_rules import check_map, row_bytes


@dataclass(frozen=True)
class TensorMap:
    """A tensor map whose fields fit into the 128 bytes of a ``CUtensorMap``.

    Every way to make a map checks that the bytes can express each field. `tiled`, `im2col`,
    `from_array` and `decode` also check the rules of the driver's encoder. The constructor, and so
    ``dataclasses.replace``, does not: the unit may refuse such a map with MAP_FIELD.

    Integers of any type, such as NumPy's, become ``int``. Enumerations may be given by member,
    number or name.

    Equal maps have equal bytes, and ``TensorMap.decode(map.encode()) == map`` for each map that the
    encoder accepts.

    Parameters
    ----------
    data_type : DataType
        Type of an element.
    global_address : int
        Byte address of the tensor, 0 to 2**64 - 1.
    global_dim : tuple of 1 to 5 int
        Elements in each dimension, 1 to 2**32. The number of entries is the rank.
    global_strides : tuple of rank - 1 int
        Bytes from an index of dimension 1, 2, ... to the next: multiples of 16 below 2**40.
    element_strides : tuple of rank int
        Steps of the box in each dimension, 1 to 8.
    interleave : Interleave
        Layout of channels.
    swizzle : Swizzle
        Pattern of shared memory.
    l2_promotion : L2Promotion
        A hint.
    oob_fill : OobFill
        Value of elements outside the tensor.
    mode : MapMode
        Tile or im2col.
    box_dim : tuple of rank int
        Elements of the box, 1 to 256. Empty for im2col.
    lower_corner, upper_corner : tuple of rank - 2 int
        Bounding box of im2col, W first, in 16 bits (rank 3), 8 bits (rank 4) or 5 bits (rank 5). If
        ``wide``, one entry of 16 bits. Empty for tile.
    channels_per_pixel : int
        1 to 256 for im2col, 0 for tile.
    pixels_per_column : int
        1 to 1024 for im2col, 0 for tile.
    wide : bool
        The map is for ``im2col::w``.
    oob_128k : bool
        The tensor has 128 KiB or more, so that a unit later than Hopper may generate any address of
        the 128 KiB from its base for elements outside. It has no effect on data.

    Raises
    ------
    TmaError
        If a field does not fit; ``parameter``, ``value`` and ``limit`` say which and why. The code
        is the field's, or LENGTH for a wrong number of entries.

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
    >>> import dataclasses
    >>> dataclasses.replace(tensor_map, box_dim=(0, 8))
    Traceback (most recent call last):
        ...
    golden.errors.TmaError: box_dim[0] = 0: must be from 1 to 256 [BOX_DIM, silicon]
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
    oob_128k: bool = False

    def __hash__(self) -> int:
        """Return the hash, which is computed once: requests with the map are looked up often."""
        known = self.__dict__.get("_hash")
        if known is None:
            known = hash(tuple(getattr(self, field.name) for field in fields(self)))
            object.__setattr__(self, "_hash", known)
        return int(known)

    def __post_init__(self) -> None:
        rank = len(sequence("global_dim", self.global_dim))
        limit = f"must be from 1 to {MAX_RANK}"
        require(1 <= rank <= MAX_RANK, ErrorCode.RANK, "rank", rank, limit)
        tensor, layout = self._checked_tensor(rank), self._checked_layout()
        box = self._checked_box(rank, layout)
        for name, value in (tensor | layout | box).items():
            object.__setattr__(self, name, value)

    def _checked_tensor(self, rank: int) -> dict[str, object]:
        """Return the fields that say where the tensor lies, or raise the error of a field."""
        strides = integers(
            ErrorCode.GLOBAL_STRIDES,
            *("global_strides", self.global_strides, rank - 1, 0, (1 << 40) - 1),
            first_dim=1,
        )
        for i, stride in enumerate(strides):
            name, limit = f"global_strides[{i}]", "must be a multiple of 16"
            require(stride % 16 == 0, ErrorCode.GLOBAL_STRIDES, name, stride, limit, dim=i + 1)
        return {
            "global_address": integer(
                ErrorCode.GLOBAL_ADDRESS, "global_address", self.global_address, 0, (1 << 64) - 1
            ),
            "global_dim": integers(
                ErrorCode.GLOBAL_DIM, "global_dim", self.global_dim, rank, 1, 1 << 32
            ),
            "global_strides": strides,
            "element_strides": integers(
                ErrorCode.ELEMENT_STRIDES, "element_strides", self.element_strides, rank, 1, 8
            ),
        }

    def _checked_layout(self) -> dict[str, Any]:
        """Return the enumerations and flags, or raise the error of a field."""
        flags: dict[str, object] = {"wide": self.wide, "oob_128k": self.oob_128k}
        for name, flag in flags.items():
            if not isinstance(flag, bool | np.bool_):
                limit = "must be True or False"
                raise TmaError(ErrorCode.VERSION, name, 0, limit, shown=repr(flag))
        kinds: dict[str, type[Named]] = {
            "data_type": DataType,
            "interleave": Interleave,
            "swizzle": Swizzle,
            "l2_promotion": L2Promotion,
            "oob_fill": OobFill,
        }
        fields: dict[str, Any] = {
            name: member(kind, ErrorCode[name.upper()], name, getattr(self, name))
            for name, kind in kinds.items()
        }
        fields["mode"] = member(MapMode, ErrorCode.MAP_MODE, "mode", self.mode)
        return fields | {name: bool(flag) for name, flag in flags.items()}

    def _checked_box(self, rank: int, layout: dict[str, Any]) -> dict[str, object]:
        """Return the fields of the box, or raise the error of a field.

        Fields of the other mode share bits with those of the map's own and must be empty or 0.
        """
        im2col, wide = layout["mode"] is MapMode.IM2COL, layout["wide"]
        fields: dict[str, object] = {
            "box_dim": integers(
                ErrorCode.BOX_DIM,
                *("box_dim", self.box_dim, 0 if im2col else rank, 1, 256),
                condition=" with mode IM2COL" if im2col else "",
            )
        }
        for code, name, most in (
            (ErrorCode.CHANNELS_PER_PIXEL, "channels_per_pixel", 256),
            (ErrorCode.PIXELS_PER_COLUMN, "pixels_per_column", 1024),
        ):
            value: object = getattr(self, name)
            if im2col:
                fields[name] = integer(code, name, value, 1, most)
            else:
                fields[name] = integer(code, name, value, 0, 0, condition=" with mode TILE")
        corners = (1 if wide else max(rank - 2, 0)) if im2col else 0
        bits = 16 if wide else CORNER_BITS.get(rank, 16)
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        with_rank = " of a wide map" if wide else f" with rank {rank}"
        for name in ("lower_corner", "upper_corner"):
            fields[name] = integers(
                ErrorCode.CORNER,
                *(name, getattr(self, name), corners, low, high),
                condition=with_rank if im2col else " with mode TILE",
                first_dim=0 if layout["interleave"] else 1,
            )
        if im2col:
            limit = f"must be from 3 to {MAX_RANK} with im2col"
            require(rank >= 3, ErrorCode.RANK, "rank", rank, limit)
        return fields

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
        oob_128k: bool = False,
        arch: Arch = Arch.SM_90A,
    ) -> "TensorMap":
        """Build a tiled map; refuse what ``cuTensorMapEncodeTiled`` refuses (silicon).

        Parameters
        ----------
        data_type : DataType
            A member, its number or its name, as for all enumerations: ``"bf16"``.
        global_address : int
            Byte address of the tensor, a multiple of 16 (32 with 32-byte interleave).
        global_dim : sequence of 1 to 5 int
            Elements in each dimension, 1 to 2**32.
        global_strides : sequence of rank - 1 int
            Bytes from an index of dimension 1, 2, ... to the next: multiples of 16 (32 with 32-byte
            interleave) below 2**40.
        box_dim : sequence of rank int
            Elements of the box, 1 to 256.
        element_strides : sequence of rank int
            1 to 8; 1 by default.
        interleave : Interleave
            Layout in slices of channels; needs rank 3 or more.
        swizzle : Swizzle
            Without interleave, a row of the box is at most as long as the swizzle's span.
        l2_promotion : L2Promotion
            A hint.
        oob_fill : OobFill
            NaN needs a float type.
        arch : Arch
            Later ones than Hopper add sub-byte types and swizzles (PTX ISA).
        oob_128k : bool
            Set the bit that says that the tensor has 128 KiB or more; see `Descriptor.oob_128k`.

        Raises
        ------
        TmaError
            Where the driver returns ``CUDA_ERROR_INVALID_VALUE``.
        """
        tensor_map = cls._accepted(
            arch, mode=MapMode.TILE, data_type=data_type, global_address=global_address,
            global_dim=global_dim, global_strides=global_strides, box_dim=box_dim,
            element_strides=element_strides, interleave=interleave, swizzle=swizzle,
            l2_promotion=l2_promotion, oob_fill=oob_fill, oob_128k=oob_128k,
        )  # fmt: skip
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
        oob_128k: bool = False,
        arch: Arch = Arch.SM_90A,
    ) -> "TensorMap":
        """Build an im2col map; refuse what ``cuTensorMapEncodeIm2col`` refuses (silicon).

        Parameters
        ----------
        data_type, global_address, global_dim, global_strides, element_strides
            As in `tiled`; the rank is 3 to 5.
        lower_corner, upper_corner : sequence of rank - 2 int, W first
            Bounding box of start positions, relative to the first and the last element of the
            tensor.
        channels_per_pixel : int
            1 to 256.
        pixels_per_column : int
            1 to 1024.
        interleave, swizzle, l2_promotion, oob_fill, arch
            As in `tiled`.
        wide : bool
            The map is for ``im2col::w``: W alone has corners, of 16 bits each, as in
            ``cuTensorMapEncodeIm2colWide`` (cuda.h; its bit in the map: choice). Not on Hopper.
        oob_128k : bool
            As in `tiled`.

        Raises
        ------
        TmaError
            Where the driver returns ``CUDA_ERROR_INVALID_VALUE``.
        """
        tensor_map = cls._accepted(
            arch, mode=MapMode.IM2COL, data_type=data_type, global_address=global_address,
            global_dim=global_dim, global_strides=global_strides, lower_corner=lower_corner,
            upper_corner=upper_corner, channels_per_pixel=channels_per_pixel,
            pixels_per_column=pixels_per_column, element_strides=element_strides,
            interleave=interleave, swizzle=swizzle, l2_promotion=l2_promotion, oob_fill=oob_fill,
            wide=wide, oob_128k=oob_128k,
        )  # fmt: skip
        tensor_map._check_bounding_box()
        return tensor_map

    @classmethod
    def _accepted(cls, arch: Arch, *, element_strides: object, **fields: Any) -> "TensorMap":
        """Build a map and check the unit's rules; element strides are 1 by default."""
        if element_strides is None:
            element_strides = (1,) * len(sequence("global_dim", fields["global_dim"]))
        tensor_map = cls(**fields | {"element_strides": element_strides})
        check_map(tensor_map._descriptor(), arch)
        return tensor_map

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.global_dim)

    def _descriptor(self) -> Descriptor:
        return Descriptor.from_bytes(self.encode())

    def _check_bounding_box(self) -> None:
        """Refuse corners between which no position is left."""
        first = 0 if self.interleave else 1
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
        """Return the elements that the encoder counts; a transfer may move more (silicon)."""
        if self.mode is MapMode.IM2COL:
            return self.channels_per_pixel * self.pixels_per_column
        steps = zip(self.box_dim, self.element_strides, strict=True)
        return math.prod(extent // stride for extent, stride in steps)

    def _smem_bytes(self) -> int:
        """Return the bytes of shared memory that ``_elements`` occupy."""
        return row_bytes(self.data_type, self._elements())

    def encode(self) -> bytes:
        """Return the 128 bytes that the driver writes (silicon)."""
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
            | self.oob_128k << 21
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
        for word, value in Descriptor(tuple(words[: READ_BYTES // 4])).metadata().items():
            words[word] = value
        return struct.pack(f"<{WORDS}I", *words)

    @classmethod
    def decode(cls, data: bytes, *, arch: Arch = Arch.SM_90A) -> "TensorMap":
        """Return the map that ``data`` holds; ``print`` shows its parameters.

        Parameters
        ----------
        data : bytes
            A ``CUtensorMap``: 128 bytes, of which the first 64 are significant and suffice.
        arch : Arch
            Architecture whose types, swizzles and modes the map may use.

        Raises
        ------
        TmaError
            If the encoder does not write such a map; MAP_BYTES, if ``data`` is no buffer of 64 to
            128 bytes. `Descriptor` takes any such bytes.
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
            "oob_128k": fields.oob_128k,
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
        """Build a tiled map of an array in memory from its address, shape, strides and type.

        Parameters
        ----------
        array : array_like
            A NumPy array of any strides that a map can express, of NumPy's or ``ml_dtypes``' types;
            or an object with ``__array_interface__`` or DLPack. Its last axis is dimension 0.
        box : sequence of int
            Elements of the box, **innermost first**, as in all of ``golden``: the reverse of the
            array's shape. ``(64, 128)`` is 128 rows of 64 elements.
        data_type : DataType, optional
            Another type of the same size.
        global_address : int, optional
            Address of the tensor for the unit; by default the array's own address.
        element_strides, swizzle, l2_promotion, oob_fill, arch
            As in `tiled`.

        Raises
        ------
        TmaError
            ARRAY, if no map can express the array; otherwise as in `tiled`.

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
        box_dim = sequence("box", box)
        kind, address, extents, strides = array_layout(array, data_type)
        if global_address is not None:
            address = global_address
        options: dict[str, Any] = {"element_strides": element_strides, "swizzle": swizzle}
        options |= {"l2_promotion": l2_promotion, "oob_fill": oob_fill, "arch": arch}

        def build(box_dim: Any) -> "TensorMap":
            return cls.tiled(kind, address, extents, strides, box_dim, **options)

        try:
            return build(box_dim)
        except TmaError as error:
            reverse = box_dim[::-1]
            try:
                build(reverse)
            except TmaError:
                raise error from None
            error.add_note(f"box is innermost first: {reverse} would be accepted")
            raise

    def with_address(self, global_address: int) -> "TensorMap":
        """Return the map of a tensor at another address, as ``cuTensorMapReplaceAddress`` does.

        Raises
        ------
        TmaError
            GLOBAL_ADDRESS, if the address is outside 0 to 2**64 - 1 or not aligned.
        """
        moved = replace(self, global_address=global_address)
        check_map(moved._descriptor(), EVERY_FEATURE)
        return moved

    def __str__(self) -> str:
        tile = self.mode is MapMode.TILE
        rows = {
            "global_address": hex(self.global_address),
            "global_dim": f"{tuple_text(self.global_dim)}  elements, innermost first",
            "global_strides": f"{tuple_text(self.global_strides)}  bytes",
        }
        size = self._smem_bytes()
        if tile:
            rows["box_dim"] = f"{tuple_text(self.box_dim)}  = {size} bytes of shared memory"
        else:
            rows["channels_per_pixel"] = str(self.channels_per_pixel)
            rows["pixels_per_column"] = f"{self.pixels_per_column}  = {size} bytes of shared memory"
            rows["lower_corner"] = f"{tuple_text(self.lower_corner)}  W first"
            rows["upper_corner"] = f"{tuple_text(self.upper_corner)}  W first"
        rows["element_strides"] = tuple_text(self.element_strides)
        for name in ("interleave", "swizzle", "l2_promotion", "oob_fill"):
            rows[name] = getattr(self, name).name
        if self.oob_128k:
            rows["oob_128k"] = "True  elements outside may be read from 128 KiB"
        width = max(map(len, rows))
        kind = "tiled" if tile else "wide im2col" if self.wide else "im2col"
        return "\n".join(
            [f"rank-{self.rank} {kind} map of {self.data_type.name}"]
            + [f"  {name:{width}}  {value}" for name, value in rows.items()]
        )
