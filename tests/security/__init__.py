"""Attacks on the port, each with its refusal. The numbers are those of the threat model in SECURITY.md's table."""
