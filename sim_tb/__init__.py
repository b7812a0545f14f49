"""Simulation of the unit: test bench, behavioural SM, kernels, and the commands around them."""

from open_tma.installation import need

need(__name__, "sim")
