"""Mistakes with phases and parities."""

from itertools import count

from tests.mistakes.form import Group
from tests.mistakes.probe import Copy, StagedCopy

GROUP = Group("Phases and parity")


@GROUP.kernel(
    "parity-of-the-step",
    "full[1]: 1 of 1 arrivals are missing in phase 1",
    "consumer waits with parity 1",
    "phase 0 has completed, and consumer never waited for it: to wait for phase 0, use parity 0",
)
class ParityOfTheStep(StagedCopy):
    """The consumer waits with the parity of the step, not of the round through the ring."""

    async def consumer(self, wg):
        for step in range(self.steps):
            stage = self.stage(step)
            parity = step % 2 if self.wrong else stage.parity
            await self.wait(wg, stage._replace(parity=parity))
            await self.use(wg, stage, step)
            await self.release(wg, stage)
        await wg.wait_group(0)


@GROUP.kernel(
    "first-wait-of-the-producer",
    "empty[0]: 1 of 1 arrivals are missing in phase 0; arrived: nobody",
    "producer waits with parity 0",
    "or use parity 1 for a first wait that must return at once",
)
class FirstWaitOfTheProducer(Copy):
    """The producer waits for the first phase of ``empty``, which ends when it has loaded."""

    async def acquire(self, wg, stage):
        await wg.mbarrier_try_wait_parity(stage.empty, stage.parity ^ (not self.wrong))


@GROUP.kernel(
    "wait-for-a-phase-too-early",
    "consumer: ldmatrix of stage[0] in cycle N, at 0x0 of shared memory: request 0",
    "the warpgroup has not waited for that phase: its last wait, for parity 1",
    "check barrier and parity of the wait",
)
class WaitForAPhaseTooEarly(StagedCopy):
    """The consumer's first wait has the producer's parity, and returns at once."""

    async def wait(self, wg, stage):
        await wg.issue(16)  # the load has been issued
        await wg.mbarrier_try_wait_parity(stage.full, stage.parity ^ self.wrong)


@GROUP.kernel(
    "parity-never-changes",
    "producer: cp.async.bulk.tensor of x at (0, 32) in cycle N overwrites",
    "before its release",
)
class ParityNeverChanges(Copy):
    """The producer always waits with parity 1: in the second round, that phase is long over."""

    async def acquire(self, wg, stage):
        await wg.issue(400)
        parity = 1 if self.wrong else stage.parity ^ 1
        await wg.mbarrier_try_wait_parity(stage.empty, parity)


@GROUP.kernel(
    "ring-entered-again",
    "full[1]: 1 of 1 arrivals are missing in phase 2",
    "consumer waits with parity 0",
    "phase 1 has completed, and consumer never waited for it: to wait for phase 1, use parity 1",
)
class RingEnteredAgain(StagedCopy):
    """The second pass over the ring starts with stage 0 and parity 0 again."""

    steps, rows = 6, 96
    passes = 2

    def roles(self):
        return {
            "producer": self.all_passes(self.producer),
            "consumer": self.all_passes(self.consumer),
        }

    def all_passes(self, role):
        async def run(wg):
            numbers = count()
            for number in range(self.passes):
                await role(wg, number * self.steps // self.passes, numbers)

        return run

    async def producer(self, wg, first, numbers):
        for step in range(first, first + self.steps // self.passes):
            stage = self.stage(next(numbers))
            await self.acquire(wg, stage)
            await self.fill(wg, stage, step)

    async def consumer(self, wg, first, numbers):
        if self.wrong:
            numbers = count()
        for step in range(first, first + self.steps // self.passes):
            stage = self.stage(next(numbers))
            await self.wait(wg, stage)
            await self.use(wg, stage, step)
            await self.release(wg, stage)
        await wg.wait_group(0)


@GROUP.kernel(
    "skipped-step",
    "full[1]: 1 of 1 arrivals are missing in phase 1",
    "consumer waits with parity 1",
    "phase 0 has completed, and consumer never waited for it: to wait for phase 0, use parity 0",
)
class SkippedStep(StagedCopy):
    """Both roles skip a tile, but the consumer counts it: parity and stage come from the index."""

    rows, steps = 96, 6
    skipped = 1

    def host(self, device):
        super().host(device)
        first = self.skipped * 16
        self.x.array[first : first + 16] = self.y.array[first : first + 16]

    async def producer(self, wg):
        numbers = count()
        for step in range(self.steps):
            if step != self.skipped:
                stage = self.stage(next(numbers))
                await self.acquire(wg, stage)
                await self.fill(wg, stage, step)

    async def consumer(self, wg):
        numbers = count()
        for step in range(self.steps):
            if step != self.skipped:
                stage = self.stage(step if self.wrong else next(numbers))
                await self.wait(wg, stage)
                await self.use(wg, stage, step)
                await self.release(wg, stage)
        await wg.wait_group(0)


@GROUP.kernel(
    "test-without-a-loop",
    "consumer: ldmatrix of stage[0] in cycle N, at 0x0 of shared memory: request 0",
    "writes there and signals full[0], and the warpgroup has not waited for that phase",
)
class TestWithoutALoop(StagedCopy):
    """The consumer tests the phase once, and goes on whatever the answer is."""

    async def wait(self, wg, stage):
        await wg.issue(16)  # the load has been issued
        while not await wg.mbarrier_test_wait_parity(stage.full, stage.parity):
            if self.wrong:
                break


@GROUP.kernel(
    "arrival-that-runs-ahead",
    "helper: an arrival at full[0] in cycle N may run ahead: it counts for phase 1",
    "nothing orders it behind the end of phase 0, in which helper has arrived before",
)
class ArrivalThatRunsAhead(Copy):
    """A stage is full when two roles have arrived, and one of them, slower, does not wait first."""

    async def init(self, wg):
        await super().init(wg, full=2)

    def roles(self):
        return super().roles() | {"helper": self.helper}

    async def helper(self, wg):
        for step in range(self.steps):
            if self.mended:
                await self.acquire(wg, self.stage(step))
            await wg.issue(1024)
            await wg.mbarrier_arrive(self.stage(step).full)
