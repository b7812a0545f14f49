"""Simulation of the unit: test bench, behavioural SM, kernels, and the commands around them."""
