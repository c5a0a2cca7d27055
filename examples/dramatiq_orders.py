import os

import dramatiq

from fifo.dramatiq import FifoBroker

dramatiq.set_broker(FifoBroker(os.environ["FIFO_URL"]))


@dramatiq.actor(max_retries=3)
def ship(order: int, customer: str) -> None:
    print(f"order {order} is on its way to {customer}", flush=True)


if __name__ == "__main__":
    ship.send(1, "Ada")
    ship.send_with_options(args=(2, "Grace"), delay=500)
