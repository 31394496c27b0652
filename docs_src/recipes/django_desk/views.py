"""Tickets behind Django, in async views and plain ones. Start it with: uvicorn django_desk.views:application"""

import json
import os
from collections.abc import AsyncIterator

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, JsonResponse, StreamingHttpResponse
from django.urls import path

from treadle import open_journal, open_session, submit, sync
from treadle.events import encode_sse, public_events
from treadle.workers import follow

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "django_desk.settings")
application = get_asgi_application()


async def begin(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"id": await submit(settings.JOURNAL, "desk", json.loads(request.body)["text"])})


async def events(request: HttpRequest, ticket: str) -> StreamingHttpResponse:
    async def stream() -> AsyncIterator[bytes]:
        async for event in public_events(follow(settings.JOURNAL, ticket, live=True)):
            yield encode_sse(event)

    return StreamingHttpResponse(stream(), content_type="text/event-stream")


def approvals(request: HttpRequest) -> JsonResponse:
    with sync.opened(open_journal(settings.JOURNAL)) as journal:
        waiting = sync.wait(journal.approvals())
    return JsonResponse({"approvals": [{"id": one.id, "ticket": one.session_id, "tool": one.tool} for one in waiting]})


def decide(request: HttpRequest, ticket: str, approval: str) -> JsonResponse:
    with sync.opened(open_session(settings.JOURNAL, id=ticket, must_exist=True)) as session:
        sync.wait(session.answer(approval, json.loads(request.body)["answer"], by="bo"))
    return JsonResponse({"ticket": ticket})


urlpatterns = [
    path("tickets", begin),
    path("tickets/<ticket>/events", events),
    path("approvals", approvals),
    path("tickets/<ticket>/approvals/<approval>", decide),
]
