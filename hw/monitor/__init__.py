"""Monitor: counts what happens in a unit, and records the milestones of its requests."""
