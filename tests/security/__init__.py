"""Attacks on the port, each with its refusal. SECURITY.md says what is defended; here is where it is tried.

- Who comes in: `test_identity` (key, named tokens, devices, proxies, JSON Web Tokens, TLS), `test_pairing` (a real
  gateway's rules, tokens that end at once).
- Scopes in text: `test_rights` (which texts are commands, who may use them, who may answer), `test_commands` (the same
  at a real gateway, by every road).
- Isolation: `test_isolation` (keys, every route), `test_profiles` (several profiles of one gateway), `test_together`
  (turns at once).
- The port: `test_port` (hosts, origins, bodies, addresses, headers, errors, what it does not open with),
  `test_redaction` (secrets), `test_proxies` (nginx and Caddy).

Known attacks of others: another's thread id, session or file (X01, M04, A10, A18: `test_isolation`), values that leak
between turns (X04, X05: `test_together`), rebinding and proxies' hosts (X06, X07: `test_port`, `test_proxies`), CORS on
streams and preflights (X09, X10, X11: `test_port`), a key in two places (X12: `tests/test_config.py`), headers, keys
compared by `==`, open binds (X13, X14: `test_port`), secrets in errors (X16: `test_redaction`), one user who takes all
(X18: `tests/test_limits_door.py`, `test_shares`). Those of broken streams (D) and of packing (P) are in docs/faults.md.
"""
