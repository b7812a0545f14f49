"""Simulation of the unit: bench, memories, behavioural SM, and the command lines around them."""
