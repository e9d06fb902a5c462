"""hermes-agui: one Hermes agent, opened to the web from inside its own gateway.

This package root stays empty of imports, so that the plugin entry, `hermes-agui check` and
`hermes-agui chat` start quickly and without Hermes.
"""

__version__ = "0.1.0"
