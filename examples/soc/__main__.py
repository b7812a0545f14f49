"""Command ``python -m examples.soc``: multiplies matrices in the example SoC, and checks them."""

import argparse
import sys
from collections.abc import Sequence

from examples.soc.gemm import multiply
from examples.soc.system import SocError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; see ``--help``."""
    parser = argparse.ArgumentParser(prog="python -m examples.soc", description=__doc__)
    for name, default in (("m", 20), ("n", 12), ("k", 24)):
        parser.add_argument(f"--{name}", type=int, default=default, metavar=name.upper())
    parser.add_argument("--poll", action="store_true", help="poll instead of using the interrupt")
    parser.add_argument(
        "--native", action="store_true", help="run the program on this processor, without RISC-V"
    )
    options = parser.parse_args(arguments)
    m, n, k = options.m, options.n, options.k
    try:
        product = multiply(m, n, k, interrupts=not options.poll, native=options.native)
    except (SocError, ValueError) as error:
        print(f"make soc: {error}", file=sys.stderr)
        return 1
    print(product.run.console, end="")
    if not product.is_right:
        print(f"make soc: C differs from NumPy's, error {product.error}", file=sys.stderr)
        return 1
    print(f"C = A B^T, {m} x {n} x {k}, int16 to int32, tiles of 8 x 8 x 16")
    print(f"clocks                    {product.clocks:,}")
    print(f"clocks waiting            {product.wait_clocks:,}")
    print(f"interrupts                {product.interrupts:,}")
    print(f"C equals NumPy's: {m * n} elements")
    return 0


if __name__ == "__main__":
    sys.exit(main())
