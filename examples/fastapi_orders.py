import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from json import dumps

from fastapi import FastAPI, Request

import fifo


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with fifo.connect(os.environ["FIFO_URL"]) as client:  # one for each process of uvicorn
        await client.declare(fifo.QueueSpec("web.orders", dedup_window=3600))
        app.state.queue = client
        yield


app = FastAPI(lifespan=lifespan)


@dataclass
class Order:
    id: int
    customer: str


@app.post("/orders", status_code=202)
async def create(order: Order, request: Request) -> dict[str, str]:
    body = dumps(asdict(order)).encode()
    # Stored by a majority when this returns; a request that is sent again is stored once.
    confirm = await request.app.state.queue.publish("web.orders", body, dedup_id=str(order.id))
    return {"message": confirm.id}
