"""The state API as a program calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib import parse

import httpx

PAGE = 100


def path_of(ref: str) -> str:
    """A state's route, whatever characters are in its name."""
    return f"/v1/states/{parse.quote(ref, safe='')}"


class ApiError(Exception):
    """The deployment refused, or there is none; the message is for people.

    Attributes:
        reached: whether somebody answered.
    """

    def __init__(self, message: str, reached: bool = True) -> None:
        """Keep both."""
        super().__init__(message)
        self.reached = reached


class StatesClient:
    """Saved states of one deployment and one tenant, which the API key tells."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        """Ask through `http`, which knows the endpoint and the key."""
        self._http = http

    async def states(self, session: str | None = None) -> list[dict[str, Any]]:
        """All states, or a session's."""
        found: list[dict[str, Any]] = []
        query: dict[str, Any] = {"limit": PAGE}
        if session is not None:
            query["session"] = session
        while True:
            page = await self.ask("GET", "/v1/states", params=query)
            found += page["data"]
            if not page["has_more"]:
                return found
            query["after"] = page["last_id"]

    async def content(self, ref: str) -> AsyncIterator[bytes]:
        """An exported state, part by part."""
        async with self._http.stream("GET", f"{path_of(ref)}/content") as answer:
            if answer.status_code != 200:
                await answer.aread()
                raise _refusal(answer)
            async for part in answer.aiter_bytes():
                yield part

    async def ask(self, method: str, path: str, **more: Any) -> Any:
        """The JSON that a route answers with.

        Raises:
            ApiError: it refused.
        """
        answer = await self._http.request(method, path, **more)
        if not answer.is_success:
            raise _refusal(answer)
        return answer.json()


def _refusal(answer: httpx.Response) -> ApiError:
    try:
        error = answer.json()["error"]
        text = f"{error['message']} ({error['code']})"
    except (ValueError, KeyError, TypeError):
        text = f"the endpoint answered {answer.status_code}; is it that of an RWKVDeployment?"
    return ApiError(text)
