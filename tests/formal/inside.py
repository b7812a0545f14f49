"""Access of proofs to the inside of a block: its named submodules and its named signals."""

from amaranth.hdl import Assert, Elaboratable, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory


class Inside:
    """Named submodules and named signals of a block.

    An attribute is the submodule of this name, or else the signal that the block assigns or reads
    under this name. A name of the netlist is what counts: how the block's source calls the variable
    does not matter.

    Parameters
    ----------
    block : str
        Name of the block, for errors.
    module : Module
        The elaborated block.
    """

    def __init__(self, block: str, module: Module) -> None:
        self.module = module
        self._block = block
        module.d.comb += []  # closes an If that is still open
        # The ports of submodules are reached by the submodule.
        ports = {
            id(Value.cast(port))
            for submodule, _ in module._named_submodules.values()
            if isinstance(submodule, wiring.Component)
            for _, _, port in submodule.signature.flatten(submodule)
        }
        self._signals: dict[str, list[Signal]] = {}
        # Amaranth has no public access to the statements of a module; its version is pinned.
        for statement in (s for domain in module._statements.values() for s in domain):
            for signal in (*statement._lhs_signals(), *statement._rhs_signals()):
                named = self._signals.setdefault(signal.name, [])
                if id(signal) not in ports and not any(signal is other for other in named):
                    named.append(signal)

    def __getattr__(self, name: str) -> Elaboratable | Signal:
        try:
            return getattr(self.module.submodules, name)
        except AttributeError:
            return self.signal(name)

    def signal(self, name: str) -> Signal:
        """Return the signal of this name.

        Raises
        ------
        AttributeError
            If the block has no signal of this name, or several.
        """
        named = self._signals.get(name, [])
        if len(named) != 1:
            names = ", ".join(sorted(self._signals))
            raise AttributeError(
                f"{self._block} has {len(named)} signals with the name {name!r}; there are: {names}"
            )
        return named[0]

    def view(self, name: str, layout: data.Layout) -> data.View:
        """Return the signal of this name by its fields."""
        return data.View(layout, self.signal(name))

    def array(self, pattern: str, count: int) -> list[Elaboratable | Signal]:
        """Return ``pattern.format(n)`` for n from 0 to ``count - 1``."""
        return [getattr(self, pattern.format(number)) for number in range(count)]


def inside(component: Elaboratable) -> Inside:
    """Elaborate ``component``, once, and return access to its inside.

    Who elaborates it later gets the same module, with what was added to it in between.
    """
    module = component.elaborate("formal")
    component.elaborate = lambda _platform: module
    return Inside(type(component).__name__, module)


def row(m: Module, memory: Memory, index: int) -> Value:
    """Return the content of a row of ``memory``, by a read port that is added for it."""
    port = Memory.read_port(memory, domain="comb")
    m.d.comb += port.addr.eq(index)
    return port.data


def copied_row(m: Module, block: Inside, name: str, index: int, copies: int = 2) -> Value:
    """Return the content of a row of the memories ``name_0``, ``name_1`` and so on, and assert that
    it is the same (see ``hw.lib.memory.Copies``).
    """
    first, *others = (row(m, getattr(block, f"{name}_{copy}"), index) for copy in range(copies))
    m.d.comb += [Assert(Value.cast(first) == Value.cast(other)) for other in others]
    return first
