"""Many people at one dashboard for minutes: does its memory stay flat?

    python benchmarks/dashboard.py --memory-minutes 10 [--sessions 50]

A session is what a browser tab is to the server: it opens a page over Streamlit's own WebSocket, takes what is drawn,
says which large messages it has kept, and asks for a refresh whenever the page's fragment is due. Nothing is drawn, so
that fifty of them leave the processor to the server. Some stay open all the time; the others close after a minute and
come again as somebody new, on the next page. The study does not change: what grows is the server's own.
"""

import asyncio
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

PAGES = ("study", "trade-offs", "compare", "loops", "search", "trial", "cluster")
_LIFE = 60.0
"""Seconds until a session that comes and goes is closed."""
_MOST_KEPT = 100
"""Large messages that a browser keeps."""


class Crowd:
    """So many sessions at once, for some time."""

    def __init__(self, url: str, sessions: int, until: float) -> None:
        self._url, self._sessions, self._until = url, sessions, until
        self._pages: Iterator[str] = cycle(PAGES)
        self.open = self.opened = self.runs = 0

    async def live(self) -> None:
        """Half of them stay; every other place is taken by one after another."""
        async with asyncio.TaskGroup() as group:
            for place in range(self._sessions):
                group.create_task(self._place(stays=place % 2 == 0, wait=place * 0.5))

    async def _place(self, stays: bool, wait: float) -> None:
        await asyncio.sleep(wait)
        while (now := time.monotonic()) < self._until:
            self.opened += 1
            self.open += 1
            await self._session(next(self._pages), self._until if stays else min(self._until, now + _LIFE))
            self.open -= 1

    async def _session(self, page: str, until: float) -> None:
        from streamlit.proto.BackMsg_pb2 import BackMsg
        from websockets.asyncio.client import connect
        from websockets.typing import Subprotocol

        address = self._url.replace("http://", "ws://") + "/_stcore/stream"
        asked = BackMsg()
        asked.rerun_script.query_string, asked.rerun_script.page_name = "study=large", page
        kept: dict[str, None] = {}
        patient: dict[str, Any] = {"open_timeout": None, "ping_interval": None, "max_size": None}
        async with connect(address, subprotocols=[Subprotocol("streamlit")], **patient) as socket:
            while True:
                began = time.monotonic()
                await socket.send(asked.SerializeToString())
                interval, fragment = await self._drawn(socket, kept, asked)
                self.runs += 1
                asked.rerun_script.fragment_id, asked.rerun_script.is_auto_rerun = fragment, True
                asked.rerun_script.cached_message_hashes[:] = list(kept)[-_MOST_KEPT:]
                due = began + interval
                if due >= until:
                    return
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _drawn(self, socket: Any, kept: dict[str, None], asked: Any) -> tuple[float, str]:
        """Take messages until the script has ended; when it is due again, and which part of it."""
        from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

        interval, fragment = 5.0, asked.rerun_script.fragment_id
        while True:
            message = ForwardMsg.FromString(await socket.recv())
            kind = message.WhichOneof("type")
            if message.metadata.cacheable:
                kept[message.hash] = None
            if kind == "new_session":
                asked.rerun_script.page_script_hash = message.new_session.page_script_hash
            elif kind == "auto_rerun":
                interval, fragment = message.auto_rerun.interval, message.auto_rerun.fragment_id
            elif kind == "delta" and message.delta.new_element.WhichOneof("type") == "exception":
                raise AssertionError(message.delta.new_element.exception.message)
            elif kind == "script_finished":
                return interval, fragment


def measure_memory(home: Path, minutes: float, sessions: int) -> list[dict[str, float]]:
    """A row per minute, and one before: the server's resident MiB, open sessions, all so far, and their refreshes."""
    import psutil

    from orchestrator.home import Home
    from tests.dashboard.browser.conftest import serving

    rows: list[dict[str, float]] = []
    with serving(Home(home), home / "memory.log") as url:
        [server] = [one for one in psutil.Process().children() if url.rsplit(":", 1)[1] in one.cmdline()]
        began = time.monotonic()
        crowd = Crowd(url, sessions, began + 60 * minutes)

        async def watch() -> None:
            living = asyncio.create_task(crowd.live())
            while not living.done():
                mib = server.memory_info().rss / 2**20
                row = {"minute": round((time.monotonic() - began) / 60, 2), "MiB": round(mib, 1)}
                rows.append({**row, "open": crowd.open, "opened": crowd.opened, "runs": crowd.runs})
                print(f"{'memory':>20}  {rows[-1]}", flush=True)
                await asyncio.wait([living], timeout=60 - (time.monotonic() - began) % 60)
            await living

        asyncio.run(watch())
    return rows
