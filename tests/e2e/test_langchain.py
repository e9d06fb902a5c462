"""LangChain's `ChatOpenAI` against a real gateway."""

from __future__ import annotations

import json
import subprocess

import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import DEADLINE, call, script, unique
from tests.foreign import HERE, interpreter

pytestmark = pytest.mark.slow


def test_a_chat_with_tools_and_a_stream(gateway: Gateway) -> None:
    python = interpreter("langchain", "langchain-openai>=1.1,<2")
    tools = [call("draw_chart", {"title": "A"}), call("draw_chart", {"title": "B"})]
    usage = {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57}
    asked = script({"tools": tools}, {"text": "Both are drawn."}, say=unique())
    plain = script({"text": "One two three.", "usage": usage})
    done = subprocess.run(
        [str(python), str(HERE / "langchain_chat.py"), f"{gateway.url}/v1", asked, plain],
        capture_output=True,
        text=True,
        timeout=DEADLINE * 3,
    )
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert (made["titles"], made["text"]) == (["A", "B"], "Both are drawn.")
    assert (made["streamed"], made["tokens"]) == ("One two three.", 57) and made["parts"] > 2
