"""Fuzzing: random and malformed requests through the golden model and the RTL: ``make fuzz``."""
