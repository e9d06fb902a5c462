"""A way to try and to test the project without a provider or a configured Hermes.

`model` is a scripted OpenAI-compatible server, `gateway` a real `hermes gateway run` in a temporary home,
`command` the two together as `hermes-agui demo`. Nothing outside this package and the tests depends on it.
"""
