"""Events of a unit with counters: how their records are read, and drawn by Perfetto."""
