"""Kernels with an instruction left out."""

from dataclasses import dataclass, field
from functools import partial

from sim_tb.sm.kernel import Kernel


@dataclass
class Without(Kernel):
    """Another kernel, whose roles skip every ``operation`` of theirs."""

    name = "without"

    operation: str = ""
    kernel: Kernel = field(default_factory=Kernel)
    of: str = ""

    def __post_init__(self):
        self.of = self.kernel.name

    @property
    def ctas(self):
        return self.kernel.ctas

    @property
    def unit(self):
        return self.kernel.unit

    def host(self, device):
        self.kernel.host(device)

    def smem(self, smem):
        self.kernel.smem(smem)

    async def prologue(self, warp):
        await self.kernel.prologue(warp)

    def warps(self):
        return {name: partial(self.role, role) for name, role in self.kernel.warps().items()}

    async def role(self, role, warp):
        async def skip(*_, **__):
            pass

        assert hasattr(warp, self.operation)
        setattr(warp, self.operation, skip)
        await role(warp)

    def check(self):
        return self.kernel.check()
