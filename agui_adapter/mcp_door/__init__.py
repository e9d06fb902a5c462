"""The MCP door: other agents give this one work, watch it, answer it and stop it.

``bridge`` carries the protocol's streamable HTTP on the gateway's port, ``tools``, ``resources`` and ``prompts`` are
what it offers, ``sdk`` alone knows the mcp package. ``stdio`` and ``slim`` are thin clients of a running gateway
(``relay``).
"""
