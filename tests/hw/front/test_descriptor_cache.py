"""Descriptor cache: each request gets its map, never a mix of two, and never a stale one."""

import random
from dataclasses import dataclass, field

import pytest

from hw.front.descriptor_cache import DescriptorCache
from hw.layouts.translation import PageFault
from hw.params import TmaParams
from tests.hw.simulate import simulation
from tests.quick import quick

PARAMS = TmaParams(descriptor_cache_entries=4, axi_data_bits=64, tlb_entries=4)
FAULTY = 0xBAD * 64
FAULTS = {
    FAULTY: {"error": 1, "decode": 0},
    FAULTY + 64: {"error": 1, "decode": 1},
    FAULTY + 128: {"error": 1, "decode": 0, "page": PageFault.ABSENT},
}
"""Fills of the maps that cannot be read, by address."""


def words_of(address: int, version: int) -> list[int]:
    """Return the words of a version of the map at an address."""
    return [(address + 16 * version + i) % (1 << 32) for i in range(16)]


@dataclass
class Observed:
    """Outputs of a run.

    ``answers``: (request, version of its map, fault, clock). ``fetches``: (address, clock).
    ``accepted``: clock in which each request was accepted.
    """

    answers: list[tuple[int, int, int, int]] = field(default_factory=list)
    fetches: list[tuple[int, int]] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)


class Driver:
    """A cache, a memory with versions of each map, and a script of requests.

    The words of each map and version differ (``words_of``), so a mix of versions is detected.
    """

    def __init__(self, params: TmaParams, seed: int = 0, stall: float = 0.0, latency: int = 20):
        self.simulation = simulation(DescriptorCache, params)
        self.dut = self.simulation.dut
        self.rng = random.Random(seed)
        self.stall = stall
        self.latency = latency
        self.versions: dict[int, int] = {}
        self.oldest: dict[int, int] = {}  # oldest legal version of the next request
        self.seen = Observed()
        self.bounds: list[tuple[int, int]] = []  # per accepted request: address, oldest version
        self.fills: list[tuple[int, int]] = []  # address, clock at which the fill is due
        self.filling = False
        self.wait = 0
        self.clock = 0

    def run(self, script: list[tuple], quiet: int = 200) -> Observed:
        """Play a script of pairs of an action and an address; return the outputs.

        ("wait", n) waits n clocks; ("invalidate", None) invalidates all maps; ("edit", address)
        writes the next version of a map to memory.
        """
        dut, rng = self.dut, self.rng

        async def drive(ctx):
            todo = list(script)
            idle = 0
            while idle < quiet:
                self.play(ctx, todo)
                ctx.set(dut.o.ready, rng.random() >= self.stall)
                ctx.set(dut.fetch.ready, rng.random() >= self.stall)
                self.offer_fill(ctx)
                moved = self.filling
                taken = self.take_inputs(ctx)
                moved |= self.take_fetch(ctx)
                moved |= self.check_answer(ctx)
                filled = self.filling and ctx.get(dut.fill.ready)
                await ctx.tick()
                for port in taken:
                    ctx.set(port.valid, 0)
                if filled:
                    self.fills.pop(0)
                    ctx.set(dut.fill.valid, 0)
                    self.filling = False
                self.clock += 1
                idle = 0 if moved or taken or todo or self.fills else idle + 1
                assert self.clock < 60_000, "the cache is blocked"

        self.simulation.run(drive)
        assert len(self.seen.answers) == sum(what == "request" for what, _ in script)
        return self.seen

    def play(self, ctx, todo: list[tuple]) -> None:
        """Start the next actions of the script; each action is offered until it is taken."""
        dut = self.dut
        busy = any(ctx.get(port.valid) for port in (dut.i, dut.prefetch, dut.invalidate))
        while todo and not busy and not self.wait:
            what, argument = todo.pop(0)
            if what == "edit":
                self.versions[argument] = self.versions.get(argument, 0) + 1
                continue
            if what == "wait":
                self.wait = argument
                continue
            busy = True
            if what == "request":
                ctx.set(dut.i.p.request_id, len(self.bounds))
                ctx.set(dut.i.p.global_address, argument)
                ctx.set(dut.i.valid, 1)
            elif what == "prefetch":
                ctx.set(dut.prefetch.payload, argument)
                ctx.set(dut.prefetch.valid, 1)
            else:
                ctx.set(dut.invalidate.p.address, argument or 0)
                ctx.set(dut.invalidate.p.all, argument is None)
                ctx.set(dut.invalidate.valid, 1)
        self.wait = max(0, self.wait - 1)

    def offer_fill(self, ctx) -> None:
        """Offer the oldest fill once it is due; memory is read in this clock."""
        if self.filling or not self.fills or self.fills[0][1] > self.clock:
            return
        if self.rng.random() < self.stall:
            return
        address = self.fills[0][0]
        version = self.versions.get(address, 0)
        words = words_of(address, version)
        ctx.set(self.dut.fill.p, {"words": words, **FAULTS.get(address, {})})
        ctx.set(self.dut.fill.valid, 1)
        self.filling = True

    def take_inputs(self, ctx) -> list:
        """Return the inputs that are taken in this clock; note what they mean for versions."""
        dut = self.dut
        ports = dut.i, dut.prefetch, dut.invalidate
        taken = [port for port in ports if ctx.get(port.valid) and ctx.get(port.ready)]
        if dut.invalidate in taken:
            every = ctx.get(dut.invalidate.p.all)
            address = ctx.get(dut.invalidate.p.address)
            for known, version in self.versions.items():
                if every or known == address:
                    self.oldest[known] = version
        if dut.i in taken:
            address = ctx.get(dut.i.p.global_address)
            self.bounds.append((address, self.oldest.get(address, 0)))
            self.seen.accepted.append(self.clock)
        return taken

    def take_fetch(self, ctx) -> bool:
        """Return whether a fetch is taken in this clock."""
        fetch = self.dut.fetch
        if not (ctx.get(fetch.valid) and ctx.get(fetch.ready)):
            return False
        address = ctx.get(fetch.payload)
        self.fills.append((address, self.clock + self.latency))
        self.seen.fetches.append((address, self.clock))
        return True

    def check_answer(self, ctx) -> bool:
        """Check the answer that is taken in this clock; return whether there is one."""
        o = self.dut.o
        if not (ctx.get(o.valid) and ctx.get(o.ready)):
            return False
        answer = ctx.get(o.p)
        number = answer.request.request_id
        address, oldest = self.bounds[number]
        assert number == len(self.seen.answers), "answers out of order"
        assert answer.request.global_address == address
        version = 0
        if not answer.fault:
            version = (answer.words[0] - address) % (1 << 32) // 16
            assert list(answer.words) == words_of(address, version), "a mix of two maps"
            newest = self.versions.get(address, 0)
            assert oldest <= version <= newest, "a map from before the invalidation"
        assert bool(answer.fault) == (address in FAULTS)
        for name, value in FAULTS.get(address, {}).items():
            assert name == "error" or answer[name] == value
        self.seen.answers.append((number, version, answer.fault, self.clock))
        return True


@pytest.mark.parametrize("seed", quick(range(8), 3))
def test_random_traffic(seed):
    """Requests, prefetches, edits with and without invalidation, faults; more maps than entries."""
    rng = random.Random(seed)
    addresses = [64 * n for n in range(1, 8)] + [*FAULTS]
    script = []
    for _ in range(500):
        what = rng.choices(
            ["request", "prefetch", "edit", "invalidate", "wait"], [60, 8, 10, 10, 4]
        )[0]
        address = rng.choice(addresses[: rng.choice((2, 5, 8))])
        if what == "wait":
            script.append((what, rng.randrange(30)))
        elif what == "invalidate" and rng.random() < 0.2:
            script.append((what, None))
        else:
            script.append((what, address))
    Driver(PARAMS, seed, stall=rng.choice((0, 0.3, 0.7)), latency=rng.choice((2, 20, 60))).run(
        script
    )


def test_hits_one_a_clock():
    script = [("request", 64), ("wait", 50), *[("request", 64)] * 100]
    seen = Driver(PARAMS).run(script)
    clocks = [clock for *_, clock in seen.answers[1:]]
    assert clocks[-1] - clocks[0] == 99
    assert clocks[0] - seen.accepted[1] == 1
    assert len(seen.fetches) == 1


@pytest.mark.parametrize("params", [PARAMS, TmaParams()], ids=["small", "default"])
def test_holds_as_many_maps_as_it_has_entries(params: TmaParams):
    maps = [64 * n for n in range(1, params.descriptor_cache_entries + 1)]
    script = [step for a in maps for step in (("request", a), ("wait", 100))]
    script += [("request", a) for a in maps] * 5
    assert len(Driver(params).run(script).fetches) == len(maps)


def test_addresses_of_maps_have_any_bits():
    """Each entry holds an address, and then its complement."""
    params = TmaParams()
    rng = random.Random(1)
    first = [
        rng.getrandbits(params.address_bits) & -64 for _ in range(params.descriptor_cache_entries)
    ]
    complements = [a ^ (1 << params.address_bits) - 64 for a in first]
    script = []
    for maps in first, complements:
        script += [step for a in maps for step in (("request", a), ("wait", 100))]
        script += [("request", a) for a in maps] * 2
    seen = Driver(params).run(script)
    assert [address for address, _ in seen.fetches] == first + complements


def test_holds_maps_that_are_requested_at_once():
    maps = [64 * n for n in range(1, 5)]
    script = [("request", a) for a in maps] + [("wait", 100)] + [("request", a) for a in maps] * 5
    assert len(Driver(PARAMS).run(script).fetches) == 4


def test_replaces_in_rotation():
    """Two new maps replace two entries: the second does not replace the first."""
    script = []
    for number in (1, 2, 3, 4, 5, 6, 5):
        script += [("request", 64 * number), ("wait", 60)]
    assert len(Driver(PARAMS).run(script).fetches) == 6


def test_look_ahead_overlaps_two_misses():
    latency = 200
    seen = Driver(PARAMS, latency=latency).run([("request", 64), ("request", 128)])
    assert seen.answers[-1][-1] < latency + 20


def test_two_requests_of_one_map_share_a_fetch():
    seen = Driver(PARAMS).run([("request", 64), ("request", 64)])
    assert len(seen.fetches) == 1


def test_prefetch_makes_a_hit():
    seen = Driver(PARAMS).run([("prefetch", 64), ("wait", 60), ("request", 64)])
    assert len(seen.fetches) == 1
    assert seen.answers[0][-1] - seen.accepted[0] == 1


def test_an_edit_is_seen_after_an_invalidation_and_not_before():
    script = [
        ("request", 64),
        ("wait", 60),
        ("edit", 64),
        ("request", 64),
        ("wait", 60),
        ("invalidate", 64),
        ("request", 64),
    ]
    seen = Driver(PARAMS).run(script)
    assert [version for _, version, *_ in seen.answers] == [0, 0, 1]


def test_a_fill_in_flight_at_an_invalidation_serves_no_later_request():
    script = [("request", 64), ("wait", 10), ("invalidate", 64), ("request", 64)]
    assert len(Driver(PARAMS, latency=40).run(script).fetches) == 2


def test_a_failed_fill_is_not_stored():
    seen = Driver(PARAMS).run([("request", FAULTY), ("wait", 60), ("request", FAULTY)])
    assert len(seen.fetches) == 2
    assert [fault for _, _, fault, _ in seen.answers] == [1, 1]


def test_bits_above_a_global_address_are_ignored():
    drive = Driver(TmaParams(address_bits=40))
    addresses = [64, 1 << 30]
    script = [("prefetch", address | 0xABC << 40) for address in addresses]
    script += [("wait", 60), *(("request", address) for address in addresses)]
    assert [address for address, _ in drive.run(script).fetches] == addresses


@pytest.mark.parametrize("seed", quick(range(4), 1))
def test_prefetches_of_many_maps_hold_up_no_request(seed):
    """Requests get entries although prefetches of other maps use both entries."""
    params = TmaParams(descriptor_cache_entries=2)
    rng = random.Random(seed)
    script = []
    for number in range(100):
        script += [("request", 64 * rng.randrange(1, 4))]
        script += [("prefetch", 64 * rng.randrange(4, 8)) for _ in range(number % 3)]
    Driver(params, seed, stall=0.3, latency=rng.choice((2, 30))).run(script)
