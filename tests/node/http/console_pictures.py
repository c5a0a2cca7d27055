"""The pictures of docs/console.md: every page of the console, on a desk and on a phone, in the
light and in the dark.

Owns which pages, and the size of a picture in colours. `make pictures` runs it; who runs it looks
at what came out.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
from pathlib import Path
from typing import Final

from PIL import Image

from tests.support.cluster import running
from tests.support.devtools import Person, chromium, person
from tests.support.shop import open_shop

FOLDER: Final = Path(__file__).parents[3] / "docs" / "pictures"

PAGES: Final = (
    ("overview", "", "Needs attention"),
    ("queues", "queues", "webhooks"),
    ("queue", "queue/orders", "shop-worker-3"),
    ("dead", "dead/payments.dlq", "no answer from the bank"),
    ("raft", "raft", "elected, because"),
    ("audit", "audit", "declare"),
)
SIZES: Final = ((1440, 900), (390, 844))

COLOURS: Final = 256
"""Of a picture: the page has few, and its file is a quarter of the browser's."""

SAMPLES: Final = 3
"""Samples in a chart before it is taken: a line and not a point."""


async def take() -> None:
    """Take all pictures, of a cluster of its own."""
    with tempfile.TemporaryDirectory(prefix="fifo-pictures-") as name:
        folder = Path(name)
        async with running(folder) as cluster:
            node = await cluster.leader()
            address = f"http://{node.me.http}"
            with chromium(folder) as browser:
                async with open_shop(cluster.url), person(browser) as viewer:
                    await viewer.opens(f"{address}/")
                    sampled = f"history.times_ms.length >= {SAMPLES}"
                    ask = "fetch('/console/feed').then(a => a.json()).then(f => f."
                    await viewer.until(f"{ask}{sampled})", within=60)
                    for page in PAGES:
                        await _page(viewer, address, *page)


async def _page(viewer: Person, address: str, name: str, path: str, shows: str) -> None:
    for width, height in SIZES:
        for dark in (False, True):
            await viewer.sees(width, height, dark=dark)
            await viewer.opens(f"{address}/#/{path}")
            await viewer.reads(shows)
            taken = Image.open(io.BytesIO(await viewer.picture(whole=False)))
            few = taken.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            few.save(
                FOLDER / f"console-{name}-{width}-{'dark' if dark else 'light'}.png", optimize=True
            )


if __name__ == "__main__":
    asyncio.run(take())
