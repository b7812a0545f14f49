"""Arithmetic of the SM's units, equal to silicon's in every bit."""
