"""Entry points that Hermes loads. Nothing here may import what only the gateway needs."""
