"""Kernels from which an instruction is left out."""

from dataclasses import dataclass, field
from functools import partial

from sim_tb.sm.kernel import Kernel


@dataclass
class Without(Kernel):
    """A kernel whose roles skip each call of ``operation``."""

    name = "without"

    operation: str = ""
    kernel: Kernel = field(default_factory=Kernel)
    kernel_name: str = ""

    def __post_init__(self):
        self.kernel_name = self.kernel.name

    @property
    def ctas(self):
        return self.kernel.ctas

    @property
    def unit_params(self):
        return self.kernel.unit_params

    def host(self, device):
        self.kernel.host(device)

    def smem(self, smem):
        self.kernel.smem(smem)

    async def prologue(self, wg):
        await self.kernel.prologue(wg)

    def roles(self):
        return {name: partial(self.role, role) for name, role in self.kernel.roles().items()}

    async def role(self, role, wg):
        async def skip(*_, **__):
            pass

        assert hasattr(wg, self.operation)
        setattr(wg, self.operation, skip)
        await role(wg)

    def check(self):
        return self.kernel.check()
