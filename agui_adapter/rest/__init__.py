"""REST over the same threads, turns and requests as every other door: thin translations, no second agent."""
