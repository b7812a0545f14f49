"""Kernels of a PTX text, launched with arrays as arguments."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import TensorMap
from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.kernel import Kernels, align_up
from sim_tb.ptx.launch import Launch, Result, run
from sim_tb.sm.record import Setting

_FIRST_ADDRESS = 0x10_0000_0000
"""Global address of the first array of a launch."""

_ALIGNMENT = 256
"""Alignment of arrays in global memory, in bytes."""


class Module(Kernels):
    """Kernels of a PTX text.

    Parameters
    ----------
    text : str or bytes
        PTX, as ``nvcc -ptx``, Triton's ``kernel.asm["ptx"]`` or clang write it, for ``sm_90`` or
        ``sm_90a``.

    Raises
    ------
    PtxError
        If the text is binary code, broken, or for another target.

    Examples
    --------
    >>> import numpy as np
    >>> text = '''.version 8.0
    ... .target sm_90a
    ... .address_size 64
    ... .entry twice(.param .u64 array) {
    ...     .reg .b32 %r<3>; .reg .b64 %rd<4>;
    ...     ld.param.u64 %rd1, [array];
    ...     mov.u32 %r1, %tid.x;
    ...     mul.wide.u32 %rd2, %r1, 4;
    ...     add.s64 %rd3, %rd1, %rd2;
    ...     ld.global.u32 %r2, [%rd3];
    ...     add.s32 %r2, %r2, %r2;
    ...     st.global.u32 [%rd3], %r2;
    ...     ret; }'''
    >>> array = np.arange(4, dtype=np.uint32)
    >>> result = Module(text).launch("twice", (1, 1, 1), (4, 1, 1), [array], engine="golden")
    >>> array
    array([0, 2, 4, 6], dtype=uint32)
    """

    def launch(
        self,
        entry: str,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        *,
        cluster: Sequence[int] | None = None,
        smem: int = 0,
        sms: int = 0,
        sanitize: bool = False,
        records: bool = False,
        engine: str = "unit",
        setting: Setting | None = None,
    ) -> Result:
        """Run a grid; the kernel changes arrays in place.

        Parameters
        ----------
        entry : str
            Name of the kernel.
        grid, block, cluster : sequence of int
            One to three extents: blocks of the grid, threads of a block, blocks of a cluster.
        args : sequence
            One value for each parameter: an array, whose address the kernel gets; a
            `golden.TensorMap`, whose address is an offset in the last array before it, or in the
            array of a pair (array, map); a number of the parameter's size; or bytes.
        smem : int
            Bytes of dynamic shared memory.
        sms : int
            SMs: so many blocks run at the same time, if their clusters fit. 0: one cluster.
        sanitize : bool
            Whether the sanitizer follows the threads, and names mistakes that this run may have
            survived. It takes about twice the time.
        records : bool
            Whether the result has a record, for ``sim_tb.report.report.write``.
        engine : str
            What carries out copies and mbarrier operations: ``"unit"``, the simulated unit; or
            ``"golden"``, the golden model, which needs no simulator and knows no time.
        setting : Setting, optional
            Surroundings of the unit.

        Returns
        -------
        Result
            Clocks and instructions of the launch.

        Raises
        ------
        PtxError
            If an argument is wrong, or the kernel makes a mistake: the arrays are unchanged.
        """
        kernel = self.kernel(entry)
        if len(args) != len(kernel.parameters):
            raise PtxError(
                f"{entry} has {len(kernel.parameters)} parameters, {len(args)} arguments are given"
            )
        arrays = _Arrays()
        data = np.zeros(kernel.parameter_bytes, np.uint8)
        for value, (name, offset, size) in zip(args, kernel.parameters, strict=True):
            encoded = arrays.encoded(name, value, size)
            if len(encoded) != size:
                raise PtxError(f"{name} has {size} bytes, its argument has {len(encoded)}")
            data[offset : offset + size] = np.frombuffer(encoded, np.uint8)
        launch = Launch(
            self.text,
            entry,
            grid,
            block,
            cluster,
            smem,
            data,
            arrays.allocations,
            sms,
            sanitize,
            records,
        )
        result = run(launch, engine, setting)
        for (_, array), after in zip(arrays.placed, result.allocations, strict=True):
            array[...] = after.view(array.dtype).reshape(array.shape)
        return result


class _Arrays:
    """Arrays of a launch, each at an address in global memory."""

    def __init__(self) -> None:
        self.placed: list[tuple[int, NDArray[Any]]] = []
        self._next = _FIRST_ADDRESS

    @property
    def allocations(self) -> list[tuple[int, NDArray[np.uint8]]]:
        """Address and bytes of each array."""
        return [(at, np.frombuffer(array.tobytes(), np.uint8)) for at, array in self.placed]

    def encoded(self, name: str, value: Any, size: int) -> bytes:
        """Return the bytes of an argument, of which arrays get an address.

        Raises
        ------
        PtxError
            If it is no argument of a parameter of ``size`` bytes.
        """
        match value:
            case np.ndarray() if value.ndim:
                return self._place(value).to_bytes(8, "little")
            case TensorMap():
                if not self.placed:
                    raise PtxError(
                        f"{name}: a tensor map needs an array among the arguments before it, or "
                        "beside it: (array, tensor_map)"
                    )
                return self._relocated(name, value, *self.placed[-1])
            case (np.ndarray() as array, TensorMap() as tensor_map) if array.ndim:
                return self._relocated(name, tensor_map, self._place(array), array)
            case bytes():
                return value
        return _scalar(name, value, size)

    def _place(self, array: NDArray[Any]) -> int:
        """Return the address of an array, which gets one when it is seen first."""
        for at, known in self.placed:
            if known is array:
                return at
        at, self._next = self._next, align_up(self._next + array.nbytes, _ALIGNMENT)
        self.placed.append((at, array))
        return at

    @staticmethod
    def _relocated(name: str, value: TensorMap, at: int, array: NDArray[Any]) -> bytes:
        """Return a map whose address, an offset in an array, is a global address."""
        if value.global_address >= array.nbytes:
            raise PtxError(
                f"{name}: address {value.global_address:#x} of the map is outside the array, which "
                f"has {array.nbytes} bytes"
            )
        return value.with_address(at + value.global_address).encode()


def _scalar(name: str, value: Any, size: int) -> bytes:
    """Return the bytes of a number as a parameter of ``size`` bytes."""
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, float) and size in (4, 8):
        return np.array(value, f"f{size}").tobytes()
    if isinstance(value, int):
        if -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
            return (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
        raise PtxError(f"{name} has {size} bytes: {value} does not fit")
    raise PtxError(f"{name}: an argument of type {type(value).__name__} is no parameter")
