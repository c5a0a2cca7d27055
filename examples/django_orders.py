import os
import threading
from json import loads

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path

import fifo
from fifo import blocking

if not settings.configured:
    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["127.0.0.1"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    )
    django.setup()

_clients: dict[int, blocking.BlockingClient] = {}
_connecting = threading.Lock()


def queue() -> blocking.BlockingClient:
    """The client of this process: gunicorn forks after it has imported the app (--preload)."""
    with _connecting:
        if os.getpid() not in _clients:
            client = blocking.connect(os.environ["FIFO_URL"])
            client.declare(fifo.QueueSpec("web.orders", dedup_window=3600))
            _clients[os.getpid()] = client
        return _clients[os.getpid()]


def create(request: HttpRequest) -> JsonResponse:
    body = request.body
    with transaction.atomic():
        order = loads(body)["id"]  # and what belongs into the database
        # After the commit: a worker never sees an order that was rolled back.
        transaction.on_commit(lambda: queue().publish("web.orders", body, dedup_id=str(order)))
    return JsonResponse({"order": order}, status=202)


urlpatterns = [path("orders", create)]
application = get_wsgi_application()
