"""Each fault is injected into a real gateway, and the same is checked each time (`invariants`)."""
