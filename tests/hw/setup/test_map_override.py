"""Map override: the words are those of the golden model, and the request passes unchanged."""

import random

from amaranth.sim import Simulator

from golden.descriptor import Descriptor
from golden.request import Override
from hw.params import PRESETS
from hw.setup.map_override import MapOverride


def random_override(rng: random.Random, rank: int) -> Override | None:
    """Return an override for a map of ``rank`` dimensions, of the address only, or none."""
    address = rng.getrandbits(64)
    match rng.randrange(3):
        case 0:
            return None
        case 1:
            return Override(address)
    dims = tuple(rng.randint(1, 255) for _ in range(rank))
    strides = tuple(rng.getrandbits(32) for _ in range(rank - 1))
    return Override(address, dims, strides, rng.getrandbits(4 * (rank - 1)) if rank > 1 else 0)


def test_words() -> None:
    seed = 1
    print(f"seed {seed}: tests/hw/setup/test_map_override.py")
    rng = random.Random(seed)
    dut = MapOverride(PRESETS["sm_107a"])

    sim = Simulator(dut)

    @sim.add_testbench
    async def drive(ctx):
        for _ in range(200):
            rank = rng.randint(1, 5)
            words = [rng.getrandbits(32) for _ in range(16)]
            words[2] = words[2] & ~(7 << 4) | (rank - 1) << 4
            override = random_override(rng, rank)
            fields = {"enabled": 0}
            expected = Descriptor(tuple(words))
            if override is not None:
                fields = {
                    "enabled": 1,
                    "has_extents": bool(override.global_dim),
                    "global_address": override.global_address,
                    "global_dim": [*override.global_dim, 7, 7, 7, 7, 7][:5],
                    "lower_strides": [*override.lower_strides, 7, 7, 7, 7][:4],
                    "upper_strides": override.upper_strides,
                }
                expected = override.applied(expected)
            number = rng.getrandbits(16)
            ctx.set(dut.i.p.request, {"request_id": number, "map_override": fields})
            ctx.set(dut.i.p.words, words)
            assert list(ctx.get(dut.o.p.words)) == list(expected.words), override
            assert ctx.get(dut.o.p.request.request_id) == number

    sim.run()
