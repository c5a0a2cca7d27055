import asyncio

from orders import Order, app, ship


async def main() -> None:
    async with app:
        await ship.send(Order(1, "Ada"), key="customer-7", delay=10)
        print(await ship.call(Order(2, "Grace")))


asyncio.run(main())
