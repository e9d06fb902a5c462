"""The door with a scripted agent, as a process: for clients and servers of other versions of mcp than the tests' own.

`python -m tests.mcp_scripted DIRECTORY` prints its address and ends with its standard input.
"""

import asyncio
import sys
from pathlib import Path

import pytest

from agui_adapter.stream import MessageChunk, MessageStart, TurnFinished
from tests.scripted import serving


async def main(home: Path) -> None:
    patch = pytest.MonkeyPatch()
    async with serving({}, home, patch) as (adapter, url):
        adapter.script = [MessageStart("m1"), MessageChunk("Hel"), MessageChunk("lo"), TurnFinished()]
        print(url, flush=True)
        await asyncio.to_thread(sys.stdin.read)
    patch.undo()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
