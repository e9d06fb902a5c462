"""End-to-end tests: a real `hermes gateway run` with a scripted model, talked to as clients do.

A package, so that a file here may have the name of a file in `tests`.
"""
