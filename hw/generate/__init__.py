"""The request generator: it walks a job and emits one line and one beat of fill a clock.

Jobs with a slot enter; line requests of loads, lines of stores and beats of fill leave. The stage
adds and compares, and multiplies only positions of im2col. It knows the layouts and ``lib``.
"""
