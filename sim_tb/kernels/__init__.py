"""Kernels for the behavioural SM, each in a file of its own."""
