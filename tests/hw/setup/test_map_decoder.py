"""Map decoder: fields and refusals are those of the golden model, for any words."""

import random

import pytest
from amaranth.sim import Simulator

from golden.arch import Arch
from golden.descriptor import Descriptor
from golden.enums import AccessMode
from golden.errors import ErrorCode, TmaError
from golden.geometry import Geometry
from hw.params import PRESETS
from hw.setup.map_decoder import MapDecoder
from tests.unit_arch import LATER_UNIT

PRESET_OF = {Arch.SM_90A: "default", LATER_UNIT: "sm_107a"}


def random_words(rng: random.Random) -> list[int]:
    """Return words of a mostly legal map, with random changes."""
    rank_less_one = rng.choice((0, 1, 2, 3, 4, 4, 5))
    w2 = rng.getrandbits(1) | rank_less_one << 4 | rng.randrange(14) << 7
    w2 |= rng.choice((0, 0, 0, 1, 2)) << 11 | rng.randrange(4) << 13
    if rng.random() < 0.2:
        w2 |= 1 << 15
    if rng.random() < 0.5:
        w2 |= rng.randrange(4) << 19
    if rng.random() < 0.1:
        w2 |= 1 << 22
    if rng.random() < 0.1:
        w2 ^= 1 << rng.randrange(23)
    unit = rng.choice((1, 16, 16, 32))
    aligned = rng.random() < 0.8
    words = [0] * 16
    words[0] = (rng.getrandbits(20) << 7) + (0 if aligned else 8 * rng.randrange(16))
    words[2] = w2
    for i in range(3, 7):
        words[i] = rng.getrandbits(10) << 1 | (not aligned and rng.getrandbits(1))
    for i in range(8, 13):
        words[i] = rng.choice((127, 255, rng.getrandbits(8), 2 * rng.getrandbits(7) + 1))
    box = rng.choice((127, 127, unit * rng.randrange(1, 9) - 1, rng.getrandbits(8)))
    words[13] = (box & 0xFF) << 24 | rng.getrandbits(15)
    words[14], words[15] = rng.getrandbits(32), rng.getrandbits(10)
    if rng.random() < 0.1:  # packed types, whose legal swizzles differ for loads and stores
        words[2] = rng.randrange(4) << 19 | rng.choice((0, 3)) << 13 | rng.choice((12, 13)) << 7
        words[2] |= (rank_less_one % 5) << 4
        words[3:7] = [0] * 4
        words[8] = rng.choice((127, 127, 63, 191))
        row = rng.choice((127, 127, 63))
        words[13] = words[13] & (1 << 24) - 1 | row << 24
    return words


@pytest.mark.parametrize("arch", PRESET_OF, ids=PRESET_OF.values())
@pytest.mark.parametrize("seed", range(2))
def test_any_words(seed: int, arch: Arch) -> None:
    rng = random.Random(seed)
    dut = MapDecoder(PRESETS[PRESET_OF[arch]])
    sim = Simulator(dut)
    refused = differ = 0

    @sim.add_testbench
    async def drive(ctx):
        nonlocal refused, differ
        for _ in range(3000):
            words = random_words(rng)
            descriptor = Descriptor(tuple(words))
            ctx.set(dut.words, words)
            decoded = ctx.get(dut.o)
            about = " ".join(f"{word:x}" for word in words)
            differ += check_direction(decoded, descriptor, arch, about)
            geometry = geometry_of(descriptor, arch)
            if isinstance(geometry, TmaError):
                is_map_error = geometry.code is ErrorCode.MAP_FIELD
                refused += is_map_error
                assert refuses(decoded, "store_only") == is_map_error, f"{about}: {geometry}"
                continue
            assert not refuses(decoded, "store_only"), about
            fields = decoded.row_pieces, decoded.row_pitch, decoded.interleaved, decoded.im2col
            row = geometry.bytes() // geometry.rows() // 16
            pitch = geometry.pitch // 16
            assert fields == (row, pitch, geometry.interleaved, descriptor.mode), about
            assert decoded.style.fill.value == descriptor.oob_fill, about
            assert decoded.style.round_tf32 == geometry.data_type.rounds, about

    sim.run()
    assert 300 < refused < 2900
    assert (differ > 30) == (arch is LATER_UNIT)


def refuses(decoded, only: str) -> bool:
    """Return whether the map is refused in a direction.

    ``only`` is the field that is set for maps that are legal in the other direction only.
    """
    return bool(decoded.refused or (only in decoded.shape().members and decoded[only]))


def check_direction(decoded, descriptor: Descriptor, arch: Arch, about: str) -> bool:
    """Check the decoding for stores; return whether stores and loads differ in being refused."""
    loads, stores = (geometry_of(descriptor, arch, store=store) for store in (False, True))
    load_refused, store_refused = (
        isinstance(result, TmaError) and result.code is ErrorCode.MAP_FIELD
        for result in (loads, stores)
    )
    assert refuses(decoded, "load_only") == store_refused, f"{about}: {stores}"
    if isinstance(stores, Geometry) and descriptor.mode:
        corners = list(zip(descriptor.lower_corner, descriptor.upper_corner, strict=True))
        decoded_corners = [(decoded.corners[j].lower, decoded.corners[j].upper) for j in range(3)]
        assert decoded_corners == [*corners, (0, 0), (0, 0)][:3], about
    return load_refused != store_refused


def geometry_of(descriptor: Descriptor, arch: Arch, *, store: bool = False) -> Geometry | TmaError:
    """Return the geometry of a request in the mode of the map, or the error that it gets."""
    try:
        mode = AccessMode.IM2COL_W if descriptor.wide else AccessMode(int(descriptor.mode))
        return Geometry(descriptor, mode, store=store, arch=arch)
    except TmaError as error:
        return error
