from dataclasses import dataclass

import fifo

app = fifo.App()  # the cluster at $FIFO_URL, or fifo.App("fifo://host:7101,host:7111")


@dataclass
class Order:
    id: int
    customer: str


@app.task("orders", retry=fifo.Exponential(min=1, max=60), max_deliveries=5)
async def ship(order: Order) -> str:
    return f"order {order.id} is on its way to {order.customer}"
