import asyncio
import os

from fifo.taskiq import FifoBroker

broker = FifoBroker(os.environ["FIFO_URL"], "taskiq.orders")


@broker.task
async def ship(order: int, customer: str) -> None:
    print(f"order {order} is on its way to {customer}", flush=True)


async def main() -> None:
    await broker.startup()
    await ship.kiq(1, "Ada")
    await ship.kicker().with_labels(delay=0.5, key="customer-7").kiq(2, "Grace")
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
