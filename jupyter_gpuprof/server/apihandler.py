"""What every route has in common: JSON answers, typed errors, checked input, a bounded body."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from jupyter_server.base.handlers import APIHandler
from tornado import web

from jupyter_gpuprof.errors import (
    GpuprofError,
    HolderNotFound,
    LedgerError,
    ReleaseRefused,
    RunNotFound,
    UsageError,
)
from jupyter_gpuprof.server.protocol import PROTOCOL_VERSION, Json, Monitor

#: Where `routes.register` puts the monitor in the settings of the web application.
MONITOR = "gpuprof_monitor"
#: What the authorizer of the server is asked about.
RESOURCE = "gpuprof"
#: More than this is not read into memory; what these routes are told fits in a line.
MOST_BODY_BYTES = 64 * 1024
#: No number of a query is larger; it keeps what is computed from them within what can be computed.
MOST = 1e12
#: Ids of kernels, orphans and runs: no slash, no blank, nothing that a log or a page could misread.
ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}")

_STATUS: tuple[tuple[type[GpuprofError], int, str], ...] = (
    (HolderNotFound, 404, "holder_not_found"),
    (RunNotFound, 404, "run_not_found"),
    (ReleaseRefused, 409, "release_refused"),
    (UsageError, 400, "bad_request"),
    (LedgerError, 503, "ledger_unreadable"),
)
_CODES = {400: "bad_request", 403: "forbidden", 404: "not_found", 405: "method_not_allowed", 413: "too_large"}
_HINTS = {
    "login_required": "Send the server's token in an Authorization header, or log in.",
    "forbidden": "With a cookie the X-XSRFToken header is needed too; the authorizer of the server has the "
    "last word.",
    "not_found": "See docs/openapi.yaml for what there is.",
    "internal": "The log of the server says more.",
}
#: Answers that are longer are packed for who can unpack them.
PACKED_FROM_BYTES = 1400


class Refusal(web.HTTPError):
    """An answer that is an error: its status, a word for programs, a sentence and what to do.

    Args:
        status: of HTTP.
        code: one word, for programs.
        message: what is wrong, one sentence.
        hint: what to do about it, one sentence.
    """

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(status, message)
        self.code, self.message, self.hint = code, message, hint

    @classmethod
    def of(cls, error: GpuprofError) -> Refusal:
        """The refusal that tells an error of ours."""
        sentence = Exception.__str__(error)  # without the hint, which has a place of its own
        for kind, status, code in _STATUS:
            if isinstance(error, kind):
                return cls(status, code, sentence, error.hint)
        return cls(500, "internal", sentence, error.hint)


@web.stream_request_body
class GpuprofHandler(APIHandler):
    """The base of our routes. Bodies are received in pieces, so that no more than allowed is kept."""

    auth_resource = RESOURCE

    def initialize(self) -> None:
        """For each request."""
        self._body = bytearray()

    @property
    def monitor(self) -> Monitor:
        """Whom to ask."""
        monitor: Monitor = self.settings[MONITOR]
        return monitor

    @property
    def user_name(self) -> str:
        """Who asks, for the audit."""
        user = self.current_user
        name = str(getattr(user, "username", "") or "")
        # The server makes up a person, "Anonymous" and a moon, for whoever has its token or password.
        if not str(getattr(user, "name", "")).startswith("Anonymous "):
            return name
        by_token = self.identity_provider.is_token_authenticated(self)
        return "somebody with the server's token" if by_token else "somebody logged in to the server"

    def set_default_headers(self) -> None:
        """On errors too: which protocol this is; nothing of it is to be kept by caches."""
        super().set_default_headers()
        self.set_header("X-Gpuprof-Protocol", str(PROTOCOL_VERSION))
        self.set_header("Cache-Control", "no-store")

    def data_received(self, chunk: bytes) -> None:
        """A piece of the body; what is too much is dropped and refused by `json_body`."""
        if len(self._body) <= MOST_BODY_BYTES:
            self._body += chunk[: MOST_BODY_BYTES + 1]

    async def ask(self, method: Callable[..., Any], *args: Any) -> Json:
        """What a method of the monitor answers.

        One that reads the ledger file runs in a thread: a locked file must not stop the server.

        Raises:
            Refusal: it raised an error of ours.
        """
        try:
            if asyncio.iscoroutinefunction(method):
                return await method(*args)
            return await asyncio.to_thread(method, *args)
        except GpuprofError as error:
            raise Refusal.of(error) from error

    def answer(self, body: Json) -> None:
        """Send the JSON, packed where that is asked for: many holders look alike."""
        text = json.dumps({"protocol": PROTOCOL_VERSION, **body}, allow_nan=False).encode()
        if len(text) > PACKED_FROM_BYTES and "gzip" in self.request.headers.get("Accept-Encoding", ""):
            self.set_header("Content-Encoding", "gzip")
            self.set_header("Vary", "Accept-Encoding")
            text = gzip.compress(text, 5)
        self.finish(text)

    async def require(self, action: str, resource: str) -> None:
        """Ask the server's authorizer for one more right.

        Raises:
            Refusal: the user does not have it.
        """
        allowed = self.authorizer.is_authorized(self, self.current_user, action, resource)
        if isinstance(allowed, Awaitable):
            allowed = await allowed
        if not allowed:
            raise Refusal(403, "forbidden", f"User is not authorized to {action} on resource: {resource}.")

    # What is asked ---------------------------------------------------------------------------------

    def checked_id(self, value: str) -> str:
        """An id of the path.

        Raises:
            Refusal: it cannot be one.
        """
        if not ID.fullmatch(value):
            raise Refusal(400, "bad_id", "The id in the path is none.", "Ids are letters, digits and _.:- .")
        return value

    def number(self, name: str, *, above: float | None = None) -> float | None:
        """A number of the query, of 0 to `MOST`; None if it is not given.

        Args:
            name: of the parameter.
            above: it must be above that.

        Raises:
            Refusal: it is no such number.
        """
        text = self.get_query_argument(name, None)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= MOST or (above is not None and value <= above):
            least = "of 0" if above is None else f"above {above:g}"
            raise bad_value(name, f"a number {least} to {MOST:g}")
        return value

    def count(self, name: str, usual: int, most: int = 1000) -> int:
        """A whole number of the query, 1 to `most`.

        Raises:
            Refusal: it is none.
        """
        text = self.get_query_argument(name, str(usual))
        if not re.fullmatch("[0-9]{1,9}", text, re.ASCII) or not 1 <= int(text) <= most:
            raise bad_value(name, f"a whole number of 1 to {most}")
        return int(text)

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """A word of the query, the first of `allowed` if it is not given.

        Raises:
            Refusal: it is none of them.
        """
        value = self.get_query_argument(name, allowed[0])
        if value not in allowed:
            raise bad_value(name, f"one of {', '.join(allowed)}")
        return value

    def json_body(self, known: frozenset[str]) -> Json:
        """The JSON object that was sent; nothing at all is an empty one.

        Args:
            known: the keys it may have.

        Raises:
            Refusal: it is too large, no JSON object, or has another key.
        """
        if len(self._body) > MOST_BODY_BYTES:
            raise Refusal(413, "too_large", f"The body is larger than {MOST_BODY_BYTES} bytes.")
        try:
            body = json.loads(self._body.decode()) if self._body.strip() else {}
        except (ValueError, RecursionError):
            raise Refusal(400, "bad_json", "The body is no JSON.") from None
        if not isinstance(body, dict):
            raise Refusal(400, "bad_json", "The body is no JSON object.")
        if body.keys() - known:
            raise Refusal(
                400, "bad_request", "The body has a key that is not known.",
                f"Known are {', '.join(sorted(known))}." if known else "It takes none.",
            )  # fmt: skip
        return body

    # Errors ----------------------------------------------------------------------------------------

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Errors as JSON: a word for programs, a sentence and a hint for persons, never a traceback."""
        error = (kwargs.get("exc_info") or (None, None, None))[1]
        code = _CODES.get(status_code, "internal" if status_code >= 500 else "refused")
        message, hint = f"{HTTPStatus(status_code).phrase}.", ""
        if isinstance(error, Refusal):
            code, message, hint = error.code, error.message, error.hint
        elif status_code == 403 and not getattr(self, "_jupyter_current_user", None):
            code, message = "login_required", "Nobody is logged in."
        elif isinstance(error, web.HTTPError) and error.log_message and status_code < 500:
            message = error.log_message % error.args
        if status_code == 405:
            names = ("get", "post")
            allowed = [n.upper() for n in names if getattr(type(self), n) is not getattr(APIHandler, n)]
            self.set_header("Allow", ", ".join([*allowed, "OPTIONS"]))
        body = {"code": code, "message": message, "hint": hint or _HINTS.get(code, "")}
        self.finish(json.dumps({"protocol": PROTOCOL_VERSION, "error": body}))


def bad_value(name: str, wanted: str) -> Refusal:
    """The refusal of a value of the query or the body."""
    return Refusal(400, "bad_value", f"{name} takes {wanted}.")
