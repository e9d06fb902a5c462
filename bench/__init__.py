"""Measurements against Hermes's own `api_server`, in one gateway process, and the scripted model called directly.

`python -m bench` prints tables and writes `results/`. Ratios of one run are what counts: absolute times belong to the
machine. Nothing here is part of the installed package.
"""
