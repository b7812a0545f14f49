"""Simulation with four states, from X at power-up: Icarus Verilog replays a GEMM's requests."""
