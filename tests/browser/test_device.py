"""A browser elsewhere: no token is known, the page makes one of its own, and the operator lets it in by its code."""

from __future__ import annotations

import re
from collections.abc import Callable

from agui_adapter.demo.gateway import Gateway
from tests.browser.conftest import Console, Watch
from tests.e2e.helpers import hermes, script

KEY = "an-operators-key-of-thirty-two-ch"


def test_a_browser_is_paired_as_a_device(
    open_page: Callable[..., Console], make_gateway: Callable[..., Gateway], watch: Watch
) -> None:
    watch.allow.append("401")
    gateway = make_gateway(
        agui={"require_token": True, "device_pairing": True}, env={"AGUI_ALLOWED_USERS": None, "AGUI_API_KEY": KEY}
    )
    console = open_page(url=gateway.url)
    page = console.page
    page.get_by_role("button", name="Pair this browser instead").click()
    page.get_by_role("button", name="Ask for a code").click()
    code = re.search(r"pairing approve agui (\S+)", page.locator(".pairing").inner_text())
    assert code, page.locator(".pairing").inner_text()
    hermes(gateway, "pairing", "approve", "agui", code[1])
    console.box.wait_for()
    console.say(script({"text": "Welcome."}))
    console.sees("Welcome.")
    page.reload()
    console.sees("Welcome.")  # the browser keeps its token
