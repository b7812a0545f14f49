"""Literal definition of every request, element by element, for comparison with the documents.

It is slow; the vectorised model, ``golden.model``, agrees with it. It checks nothing: the request
must be one that the unit accepts. Rules without a mark are (silicon).

A *unit* is what dimension 0 counts: an element, or a slice of an interleaved map.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import numpy as np

from golden.arch import Arch
from golden.descriptor import Descriptor
from golden.enums import (
    AccessMode,
    DataType,
    Interleave,
    OobFill,
    ReductionOp,
    ReportMechanism,
    Swizzle,
)
from golden.memory import Bytes, Memory
from golden.request import (
    ApplyPriority,
    BulkApplyPriority,
    BulkLoad,
    BulkPrefetch,
    BulkReduce,
    BulkStore,
    Completion,
    DsmemCopy,
    DsmemReduce,
    Load,
    Prefetch,
    Reduce,
    Request,
    Store,
    TensorRequest,
    TensorWalk,
    as_descriptor,
)

# Arithmetic


def ceil_div(a: int, b: int) -> int:
    """Return ``a / b``, rounded up."""
    return -(-a // b)


def swizzled(address: int, swizzle: Swizzle) -> int:
    """Return the address after the swizzle (silicon; modes 4 and above: PTX ISA)."""

    def bit(n: int) -> int:
        return address >> n & 1

    match swizzle:
        case Swizzle.NONE:
            return address
        case Swizzle.SWIZZLE_32B:
            return address ^ bit(7) << 4
        case Swizzle.SWIZZLE_64B:
            return address ^ bit(7) << 4 ^ bit(8) << 5
        case Swizzle.SWIZZLE_128B:
            return address ^ bit(7) << 4 ^ bit(8) << 5 ^ bit(9) << 6
        case Swizzle.SWIZZLE_128B_ATOM_32B:
            return address ^ bit(7) << 5 ^ bit(8) << 6
        case Swizzle.SWIZZLE_128B_ATOM_32B_FLIP_8B:
            return address ^ bit(7) << 5 ^ bit(8) << 6 ^ bit(7) << 3
        case Swizzle.SWIZZLE_128B_ATOM_64B:
            return address ^ bit(7) << 6
        case Swizzle.SWIZZLE_96B:
            return address ^ bit(7) << 4


def round_tf32(word: int) -> int:
    """Round a binary32 to tf32, to nearest even; infinities stay, all NaNs become 0x7FFFE000."""
    if word >> 23 & 0xFF == 0xFF:
        return 0x7FFFE000 if word & 0x7FFFFF else word
    return word + 0xFFF + (word >> 13 & 1) & 0xFFFFE000


def converted(data: bytes, data_type: DataType) -> bytes:
    """Return the bytes that a load writes to shared memory for a unit of ``data``."""
    if not data_type.rounds:
        return data
    words = (int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4))
    return b"".join(round_tf32(word).to_bytes(4, "little") for word in words)


def fill_bytes(oob_fill: OobFill, count: int) -> bytes:
    """Return ``count`` bytes of fill: zeros, or 0x7FF7 in every 16 bits."""
    return (b"\xf7\x7f" * count)[:count] if oob_fill else bytes(count)


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format: ``bits`` in all, of which ``mantissa`` for the fraction."""

    bits: int
    mantissa: int

    @property
    def infinity(self) -> int:
        """Word of positive infinity."""
        return (1 << (self.bits - 1)) - (1 << self.mantissa)

    @property
    def bias(self) -> int:
        """Bias of the exponent."""
        return (1 << (self.bits - self.mantissa - 2)) - 1

    def magnitude(self, word: int) -> int:
        """Return the word without its sign bit."""
        return word & ~(1 << (self.bits - 1))

    def is_nan(self, word: int) -> bool:
        """Return whether the word is a NaN."""
        return self.magnitude(word) > self.infinity

    def is_negative(self, word: int) -> bool:
        """Return whether the sign bit is set."""
        return bool(word >> (self.bits - 1))

    def value(self, word: int) -> Fraction:
        """Return the exact value of a finite word."""
        exponent, mantissa = divmod(self.magnitude(word), 1 << self.mantissa)
        if exponent:
            mantissa += 1 << self.mantissa
        scale = Fraction(2) ** (max(exponent, 1) - self.bias - self.mantissa)
        return (-mantissa if self.is_negative(word) else mantissa) * scale

    def rounded(self, value: Fraction) -> int:
        """Return the word nearest to ``value``, ties to even; infinity if it is out of range."""
        size = abs(value)
        if not size:
            return 0
        # Either the exponent of the leading bit, or one less.
        highest = size.numerator.bit_length() - size.denominator.bit_length() - 1
        exponent = max(highest + self.bias, 1)
        while size >= Fraction(2) ** (exponent + 1 - self.bias):
            exponent += 1
        steps = size / Fraction(2) ** (exponent - self.bias - self.mantissa)
        # ``round`` rounds ties to even; a carry out of the fraction increments the exponent.
        word = min(round(steps) + ((exponent - 1) << self.mantissa), self.infinity)
        return word | (value < 0) << (self.bits - 1)

    def flushed(self, word: int) -> int:
        """Return the word; zero of the same sign if it is subnormal."""
        subnormal = self.magnitude(word) < 1 << self.mantissa
        return word & 1 << (self.bits - 1) if subnormal else word

    def sum(self, a: int, b: int) -> int | None:
        """Return the sum, rounded once; None if it is a NaN."""
        if self.is_nan(a) or self.is_nan(b):
            return None
        infinite = [word for word in (a, b) if self.magnitude(word) == self.infinity]
        if infinite:
            return infinite[0] if len(set(infinite)) == 1 else None
        if self.magnitude(a) == self.magnitude(b) == 0:
            return a & b  # the sum is -0 only if both are
        total = self.value(a) + self.value(b)
        return self.rounded(total)


HALF = FloatFormat(16, 10)
BRAIN = FloatFormat(16, 7)
SINGLE = FloatFormat(32, 23)
DOUBLE = FloatFormat(64, 52)


def float_sum(data_type: DataType, m: int, s: int) -> int:
    """Return the floating-point sum of memory's word ``m`` and the source's word ``s``."""
    if data_type is DataType.FLOAT64:
        for word in (s, m):
            if DOUBLE.is_nan(word):
                return word
        total = DOUBLE.sum(m, s)
        return 0xFFF8000000000000 if total is None else total
    if data_type in (DataType.FLOAT16, DataType.BFLOAT16):
        total = (HALF if data_type is DataType.FLOAT16 else BRAIN).sum(m, s)
        return 0x7FFF if total is None else total
    if data_type.flushes:
        m, s = SINGLE.flushed(m), SINGLE.flushed(s)
    total = SINGLE.sum(m, s)
    if total is None:
        return 0x7FFFFFFF
    return SINGLE.flushed(total) if data_type.flushes else total


def float_extreme(form: FloatFormat, m: int, s: int, largest: bool) -> int:
    """Return the minimum or maximum of two words; a number wins over a NaN, -0 is below +0."""
    numbers = [word for word in (m, s) if not form.is_nan(word)]
    if not numbers:
        return 0x7FFF

    def order(word: int) -> tuple[bool, int]:
        is_negative, magnitude = form.is_negative(word), form.magnitude(word)
        return not is_negative, -magnitude if is_negative else magnitude

    return max(numbers, key=order) if largest else min(numbers, key=order)


def combined(op: ReductionOp, data_type: DataType, m: int, s: int) -> int:
    """Return memory's element after a reduction.

    ``m`` is memory's element before it, ``s`` the source's: words of the type's size.
    """
    bits = data_type.bits
    match op:
        case ReductionOp.AND:
            return m & s
        case ReductionOp.OR:
            return m | s
        case ReductionOp.XOR:
            return m ^ s
        case ReductionOp.INC:
            return 0 if m >= s else m + 1
        case ReductionOp.DEC:
            return s if m == 0 or m > s else m - 1
        case ReductionOp.ADD if data_type.is_float:
            return float_sum(data_type, m, s)
        case ReductionOp.ADD:
            return (m + s) % (1 << bits)
    largest = op is ReductionOp.MAX
    if data_type.is_float:
        return float_extreme(HALF if data_type is DataType.FLOAT16 else BRAIN, m, s, largest)
    signed = data_type in (DataType.INT32, DataType.INT64)

    def number(word: int) -> int:
        return word - (word >> (bits - 1) << bits) if signed else word

    return max(m, s, key=number) if largest else min(m, s, key=number)


# Walks: positions of the tensor in the order in which shared memory holds them


def tile_rows(d: Descriptor, coords: Sequence[int]) -> Iterator[list[list[int]]]:
    """Yield the rows of a tiled box: each is a list of positions, one for each unit."""
    rank = d.rank
    interleaved = d.interleave is not Interleave.NONE
    stride = [d.element_strides[i] if interleaved or i > 0 else 1 for i in range(rank)]
    steps = [ceil_div(d.box_dim[i], stride[i]) for i in range(rank)]
    if interleaved:
        steps[rank - 2] = 1
    for outer in product(*(range(n) for n in reversed(steps[1:]))):
        row = []
        for k0 in range(steps[0]):
            k = (k0, *reversed(outer))
            row.append([coords[i] + k[i] * stride[i] for i in range(rank)])
        yield row


def channels(start: Sequence[int], count: int) -> list[list[int]]:
    """Return a row of ``count`` units, which follow each other in dimension 0."""
    return [[start[0] + e, *start[1:]] for e in range(count)]


def im2col_rows(
    d: Descriptor, coords: Sequence[int], offsets: Sequence[int]
) -> Iterator[list[list[int]]]:
    """Yield the rows of im2col, one for each pixel."""
    rank = d.rank
    spatial = rank - 2
    first = 0 if d.interleave else 1
    position = list(coords)
    for _ in range(d.pixels_per_column):
        access = list(position)
        for j in range(spatial):
            access[first + j] += offsets[j] if offsets else 0
        yield [access] if d.interleave else channels(access, d.channels_per_pixel)
        for j in range(spatial):
            i = first + j
            position[i] += d.element_strides[i]
            if position[i] <= d.global_dim[i] - 1 + d.upper_corner[j]:
                break
            position[i] = d.lower_corner[j]
        else:
            position[rank - 1] += d.element_strides[rank - 1]


def gather4_rows(d: Descriptor, coords: Sequence[int]) -> Iterator[list[list[int]]]:
    """Yield four rows of a matrix, each at its own coordinate (PTX ISA)."""
    for row in coords[1:]:
        yield channels([coords[0], row], d.box_dim[0])


def im2col_w_rows(
    d: Descriptor, coords: Sequence[int], mode: AccessMode, halo: int, offset: int
) -> Iterator[list[list[int]]]:
    """Yield the rows of ``im2col::w`` or ``im2col::w::128`` (PTX ISA)."""
    last = d.rank - 1
    low, high = d.lower_corner[0] + offset, d.global_dim[1] + d.upper_corner[0] + offset

    def walk() -> Iterator[list[int]]:
        current = list(coords)
        current[1] += offset
        while True:
            yield list(current)
            current[1] += d.element_strides[1]
            if current[1] >= high:
                current[1] = low
                current[last] += d.element_strides[last]

    count = 128 + 31 if mode is AccessMode.IM2COL_W_128 else d.pixels_per_column + halo
    positions = [position for position, _ in zip(walk(), range(count), strict=False)]
    order = list(range(d.pixels_per_column + halo))
    if mode is AccessMode.IM2COL_W_128:
        groups = range(4)
        order = list(range(128)) + [32 * (g + 1) + h for h in range(halo) for g in groups]
    for n in order:
        yield channels(positions[n], d.channels_per_pixel)


def request_rows(request: TensorRequest) -> Iterator[list[list[int]]]:
    """Return the rows of positions of a request, in the order of shared memory."""
    d = as_descriptor(request.tensor_map)
    mode = AccessMode(int(d.mode)) if request.mode is None else request.mode
    walk = request if isinstance(request, TensorWalk) else TensorWalk(d, ())
    match mode:
        case AccessMode.TILE:
            return tile_rows(d, request.coords)
        case AccessMode.IM2COL:
            return im2col_rows(d, request.coords, walk.im2col_offsets)
        case AccessMode.TILE_GATHER4 | AccessMode.TILE_SCATTER4:
            return gather4_rows(d, request.coords)
    return im2col_w_rows(d, request.coords, mode, walk.w_halo, walk.w_offset)


# Tensor requests


@dataclass(frozen=True)
class Unit:
    """Place of a unit in both memories.

    Parameters
    ----------
    gmem : int
        Bit address in global memory.
    smem : int
        Bit address in shared memory, before the swizzle.
    inside : bool
        True if the unit is inside the tensor.
    row_inside : bool
        True if the unit's row is inside the tensor in every dimension above 0.
    """

    gmem: int
    smem: int
    inside: bool
    row_inside: bool


def units(request: TensorRequest, smem_address: int) -> Iterator[Unit]:
    """Yield all units of a request, in the order of shared memory."""
    d = as_descriptor(request.tensor_map)
    kind, swizzle = d.data_type, d.swizzle
    assert kind is not None
    assert swizzle is not None
    interleaved = d.interleave is not Interleave.NONE
    gmem_bits = 128 * int(d.interleave or 0) if interleaved else kind.bits
    smem_bits = gmem_bits if interleaved else kind.smem_bits
    step = [gmem_bits, *(8 * stride for stride in d.global_strides)]
    limit = list(d.global_dim[: d.rank])
    if isinstance(request, Store) and not interleaved:
        # A store writes whole pieces: 16 bytes of shared memory.
        limit[0] = ceil_div(limit[0] * smem_bits, 128) * 128 // smem_bits
    for r, row in enumerate(request_rows(request)):
        span = None if interleaved else swizzle.span
        pitch = 8 * span if span else len(row) * smem_bits
        for k, position in enumerate(row):
            in_dim = [0 <= position[i] < limit[i] for i in range(d.rank)]
            yield Unit(
                8 * d.global_address + sum(p * s for p, s in zip(position, step, strict=False)),
                8 * smem_address + r * pitch + k * smem_bits,
                all(in_dim),
                all(in_dim[1:]),
            )


def read_bits(gmem: Memory, address: int, count: int) -> int:
    """Return ``count`` bits of global memory from bit ``address``."""
    first, last = address // 8, (address + count - 1) // 8
    addresses = [byte % (1 << 64) for byte in range(first, last + 1)]
    data = gmem.read(np.array(addresses, np.uint64)).tobytes()
    return int.from_bytes(data, "little") >> address % 8 & ((1 << count) - 1)


def write_bits(gmem: Memory, address: int, count: int, value: int) -> None:
    """Write ``count`` bits of ``value`` at bit ``address`` of global memory."""
    first, last = address // 8, (address + count - 1) // 8
    addresses = np.array([byte % (1 << 64) for byte in range(first, last + 1)], np.uint64)
    mask = ((1 << count) - 1) << address % 8
    old = int.from_bytes(gmem.read(addresses).tobytes(), "little")
    new = old & ~mask | value << address % 8
    data = new.to_bytes(len(addresses), "little")
    gmem.write(addresses, np.frombuffer(data, np.uint8))


def unit_bits(d: Descriptor) -> int:
    """Return the bits of a unit in global memory."""
    assert d.data_type is not None
    return 128 * int(d.interleave) if d.interleave else d.data_type.bits


def load(request: Load, gmem: Memory, smem: Bytes) -> int:
    """Load a box; return the bytes that ``complete_tx`` counts.

    Elements of packed types are contiguous from the start of each 16 bytes of shared memory; the
    rest of the 16 bytes stays unchanged (choice).
    """
    d = as_descriptor(request.tensor_map)
    kind, swizzle, bits = d.data_type, d.swizzle, unit_bits(d)
    assert kind is not None
    assert swizzle is not None
    total = 0
    for unit in units(request, request.smem_address):
        if bits % 8 == 0:
            value = read_bits(gmem, unit.gmem, bits) if unit.inside else 0
            data = converted(value.to_bytes(bits // 8, "little"), kind)
            if not unit.inside:
                data = fill_bytes(d.oob_fill, bits // 8)
            for b, byte in enumerate(data):
                smem[swizzled(unit.smem // 8 + b, swizzle)] = byte
        else:
            value = read_bits(gmem, unit.gmem, bits) if unit.inside else 0
            piece, rest = divmod(unit.smem, 128)
            place = 128 * piece + rest // kind.smem_bits * bits
            for b in range(bits):
                byte, bit = swizzled((place + b) // 8, swizzle), (place + b) % 8
                smem[byte] = int(smem[byte]) & ~(1 << bit) | (value >> b & 1) << bit
        total += bits
    return total // 8


def store(request: Store, gmem: Memory, smem: Bytes) -> None:
    """Store or reduce a box; global memory outside the tensor stays unchanged."""
    d = as_descriptor(request.tensor_map)
    kind, swizzle, bits = d.data_type, d.swizzle, unit_bits(d)
    assert kind is not None
    assert swizzle is not None
    for unit in units(request, request.smem_address):
        if not unit.row_inside and request.mode is AccessMode.IM2COL_W:
            return  # stops at the first pixel outside (PTX ISA)
        if not unit.inside:
            continue
        first = unit.smem // 8
        count = max(bits // 8, 1)
        data = bytes(smem[swizzled(first + b, swizzle)] for b in range(count))
        value = int.from_bytes(data, "little") >> unit.smem % 8 & ((1 << bits) - 1)
        if isinstance(request, Reduce):
            # A slice of an interleaved map holds several elements.
            for at in range(0, bits, kind.bits):
                mask = (1 << kind.bits) - 1
                old = read_bits(gmem, unit.gmem + at, kind.bits)
                new = combined(request.op, kind, old, value >> at & mask)
                write_bits(gmem, unit.gmem + at, kind.bits, new)
        else:
            write_bits(gmem, unit.gmem, bits, value)


def source_bytes(request: Load) -> set[int]:
    """Return the addresses of the bytes of global memory that a load reads."""
    bits = unit_bits(as_descriptor(request.tensor_map))
    return {
        byte % (1 << 64)
        for unit in units(request, request.smem_address)
        if unit.inside
        for byte in range(unit.gmem // 8, (unit.gmem + bits - 1) // 8 + 1)
    }


def matches(report: ReportMechanism, gmem: Memory, read: set[int]) -> bool:
    """Return whether one of the inspected elements of a load has the pattern (PTX ISA).

    One element of each aligned 16 bytes is inspected, the first (choice), or each byte. All bytes
    of an element must be among those that are read.
    """
    pattern = report.pattern
    if not pattern:
        return False
    for address in read:
        element = range(address, address + len(pattern))
        if address % report.spacing == 0 and read.issuperset(element):
            got = [read_bits(gmem, 8 * byte, 8) & report.mask for byte in element]
            if bytes(got) == pattern:
                return True
    return False


# Bulk requests


def bulk_reduce(
    op: ReductionOp,
    data_type: DataType,
    size: int,
    read: Callable[[int], int],
    write: Callable[[int, int], None],
    source: Bytes,
) -> None:
    """Reduce ``size`` bytes of ``source`` into a memory.

    ``read`` and ``write`` access one element of the memory, at an offset in bytes.
    """
    item = data_type.itemsize
    for at in range(0, size, item):
        value = int.from_bytes(source[at : at + item].tobytes(), "little")
        write(at, combined(op, data_type, read(at), value))


def receivers(request: Load | BulkLoad, cta: int) -> list[tuple[int, int]]:
    """Return pairs of a receiving CTA and the CTA whose mbarrier counts the bytes."""
    paired = isinstance(request, Load) and request.cta_group == 2
    if request.cta_mask is None:
        dst = cta if request.dst_cta is None else request.dst_cta
        holds = request.mbarrier_cta if paired else None
        return [(dst, dst if holds is None else holds)]
    ranks = [rank for rank in range(32) if request.cta_mask >> rank & 1]
    if paired:
        holder = cta if request.mbarrier_cta is None else request.mbarrier_cta
        return [(rank, rank - rank % 2 + holder % 2) for rank in ranks]
    return [(rank, rank) for rank in ranks]


def execute(
    request: Request,
    gmem: Memory,
    smem: Sequence[Bytes],
    *,
    cta: int = 0,
    arch: Arch = Arch.SM_90A,
) -> list[Completion]:
    """Execute a request, as ``golden.model.execute`` does.

    CTA pairs, byte masks and ignored bytes are (PTX ISA).
    """
    if isinstance(request, TensorRequest):
        request = replace(request, tensor_map=request.descriptor.for_arch(arch), override=None)
    else:
        # Bits 19:4 of the size count. A request without a byte does nothing.
        request = replace(request, size=request.size // 16 * 16 % (1 << 20))
        if not request.size:
            return []
    match request:
        case Prefetch() | BulkPrefetch() | ApplyPriority() | BulkApplyPriority():
            return []
        case Load():
            counts = [load(request, gmem, smem[dst]) for dst, _ in receivers(request, cta)]
            read = source_bytes(request)
        case Store():
            store(request, gmem, smem[cta])
            return []
        case BulkLoad():
            counts = []
            for dst, _ in receivers(request, cta):
                for b in range(request.ignore_first, request.size - request.ignore_last):
                    value = read_bits(gmem, 8 * (request.gmem_address + b), 8)
                    smem[dst][request.smem_address + b] = value
                counts.append(request.size)
            read = set(range(request.gmem_address, request.gmem_address + request.size))
        case DsmemCopy():
            source = smem[cta][request.smem_address :]
            target = smem[request.dst_cta][request.dst_address :]
            if isinstance(request, DsmemReduce):
                item = request.data_type.itemsize

                def read_smem(at: int) -> int:
                    return int.from_bytes(target[at : at + item].tobytes(), "little")

                def write_smem(at: int, value: int) -> None:
                    data = value.to_bytes(item, "little")
                    target[at : at + item] = np.frombuffer(data, np.uint8)

                bulk_reduce(
                    *(request.op, request.data_type, request.size), read_smem, write_smem, source
                )
            else:
                for b in range(request.size):
                    target[b] = source[b]
            return [Completion(request.dst_cta, request.mbarrier, request.size)]
        case BulkStore():
            for b in range(request.size):
                if request.byte_mask >> b % 16 & 1:
                    value = int(smem[cta][request.smem_address + b])
                    write_bits(gmem, 8 * (request.gmem_address + b), 8, value)
            return []
        case BulkReduce():
            bits, base = request.data_type.bits, request.gmem_address

            def read_gmem(at: int) -> int:
                return read_bits(gmem, 8 * (base + at), bits)

            def write_gmem(at: int, value: int) -> None:
                write_bits(gmem, 8 * (base + at), bits, value)

            source = smem[cta][request.smem_address :]
            bulk_reduce(
                *(request.op, request.data_type, request.size), read_gmem, write_gmem, source
            )
            return []
    barriers = [holder for _, holder in receivers(request, cta)]
    reports = matches(request.report, gmem, read)
    return [
        Completion(holder, request.mbarrier, count, reports)
        for holder, count in zip(barriers, counts, strict=True)
    ]
