"""Mistakes with the scope of synchronisation."""

import numpy as np

from sim_tb.sm.global_memory import Order
from sim_tb.sm.sanitizer import Scope
from sim_tb.sm.warps import warps
from tests.mistakes.clusters import CTAS, Broadcast
from tests.mistakes.form import Group
from tests.mistakes.probe import Copy

GROUP = Group("Scopes")


@GROUP.kernel(
    "arrival-of-cta-scope",
    "producer of CTA 0: cp.async.bulk.tensor of x at (0, 32) in cycle N",
    "the only synchronisation between them is too narrow: the arrival by consumer of CTA",
    "has scope .cta; use scope .cluster",
)
class ArrivalOfCtaScope(Broadcast):
    """Consumers release a stage to other CTAs with an arrival of scope ``.cta``."""

    async def release(self, wg, stage):
        scope = Scope.CTA if self.wrong else Scope.CLUSTER
        for cta in range(CTAS):
            await wg.mbarrier_arrive(stage.empty, cta=cta, scope=scope)


@GROUP.kernel(
    "wait-of-cta-scope",
    "producer of CTA 0: cp.async.bulk.tensor of x at (0, 32) in cycle N",
    "the only synchronisation between them is too narrow",
    "has scope .cta; use scope .cluster",
)
class WaitOfCtaScope(Broadcast):
    """The producer waits with scope ``.cta`` for consumers of other CTAs."""

    async def acquire(self, wg, stage):
        scope = Scope.CTA if self.wrong else Scope.CLUSTER
        await wg.mbarrier_try_wait_parity(stage.empty, stage.parity ^ 1, scope=scope)


class Flag(Copy):
    """The consumer tells another role through a flag in global memory that y is written."""

    def host(self, device):
        super().host(device)
        self.flag = device.tensor("flag", np.zeros(1, np.int32))

    def roles(self):
        return super().roles() | {"reader": warps(1)(self.reader)}

    async def consumer(self, wg):
        await super().consumer(wg)
        first = np.arange(wg.threads) == 0
        order = Order.RELAXED if self.wrong else Order.RELEASE
        await wg.st_global(self.flag, 0, 1, where=first, order=order)

    async def reader(self, wg):
        while not (await wg.ld_global(self.flag, 0, order=Order.ACQUIRE)).all():
            pass
        await wg.ld_global(self.y, np.arange(wg.threads))


@GROUP.kernel(
    "flag-without-release",
    "reader: ld.global of y in cycle N, at 0x",
    "the threads do not know that it is complete",
    "or write a flag with .release that it reads with .acquire",
)
class FlagWithoutRelease(Flag):
    """The flag is written with ``.relaxed``: what came before it may come after it."""
