"""The JSON of a trace as a stream of events, in bounded memory.

A trace is one JSON value, often of gigabytes: ``{..., "traceEvents": [{...}, {...}, ...], ...}`` or the
bare list. It is read in blocks. Each block is cut after an event and what comes before the cut is
decoded as a list of its own. A cut is a guess (``}``, a comma, ``{``); decoding proves it: if the cut
were inside a string or a nested value, closing the list there would not be valid JSON.

msgspec decodes just the fields of `Event`, which takes a fifth of the time of building dicts
(measured in benchmarks/traces.py). What it cannot decode is cleaned (bytes that are not UTF-8, raw
control characters, stray backslashes, nan), then read field by field, and at last event by event, so
that one broken event costs one event.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from jupyter_gpuprof.errors import TraceError

BLOCK_BYTES = 1 << 20
#: A file that has no event in so many bytes is no trace; what precedes the events is small.
_ENOUGH_BYTES = 16 * BLOCK_BYTES
#: Where some events are broken, longer ones are taken for broken.
_LONGEST_EVENT_BYTES = 1 << 16
_CUTS_TO_TRY = 2

_BETWEEN_EVENTS = re.compile(rb"\}(\s*,\s*)(?=\{)")
_END_OF_EVENT = re.compile(rb"\}(?=\s*(?:,|\]|$))")
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')

_CONTROL_TO_SPACE = bytes(byte if byte >= 0x20 else 0x20 for byte in range(256))
_BACKSLASH = re.compile(rb'\\(["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})?')
_NOT_A_NUMBER = re.compile(rb":\s*[-+]?(?:nan|inf(?:inity)?)\b(?:\([^)]*\))?", re.IGNORECASE)


class Args(msgspec.Struct, gc=False):
    """The arguments of an event that we use."""

    device: Any = None
    stream: Any = None
    collective: Any = msgspec.field(name="Collective name", default=None)
    group: Any = msgspec.field(name="Process Group Name", default=None)
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default=None)


class Event(msgspec.Struct, gc=False):
    """One trace event; `ts` and `dur` in microseconds."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: int | float | None = None
    dur: int | float | None = None
    pid: Any = None
    tid: Any = None
    args: Args | None = None


class Header(msgspec.Struct, gc=False):
    """What a trace says about itself, and, at its end, the last events."""

    deviceProperties: Any = None
    distributedInfo: Any = None
    baseTimeNanoseconds: Any = None
    traceEvents: list[Event] = []


_HEADER_FIELDS = ("deviceProperties", "distributedInfo", "baseTimeNanoseconds")
_EVENTS = msgspec.json.Decoder(list[Event])
_HEADER = msgspec.json.Decoder(Header)
_ANY = msgspec.json.Decoder()
_BROKEN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class TraceEvents:
    """The events of one trace, in lists of some thousands as they are read.

    Args:
        read: the next bytes of the file, at most so many; none at its end.
        source: the file's name, for messages.
        block_bytes: how much is read at a time.

    After the last list: `header` is complete, `unreadable` events were left out, and `cut_off` tells
    that the JSON stopped before its end.

    Raises:
        TraceError: while iterating, when this is no trace.
    """

    def __init__(self, read: Callable[[int], bytes], source: str, block_bytes: int = BLOCK_BYTES) -> None:
        self._read = partial(read, block_bytes)
        self._source = source
        self.header: dict[str, Any] = {}
        self.unreadable = 0
        self.cut_off = False

    def __iter__(self) -> Iterator[list[Event]]:
        opening, rest = self._open()
        while block := self._read():
            rest += block
            events, rest = self._up_to_a_cut(rest)
            if events:
                yield events
        yield self._last(opening, rest)

    def _open(self) -> tuple[bytes, bytes]:
        """Read up to the first event: what opens the list, and the bytes that follow."""
        start = b""
        while block := self._read():
            start = (start + block).removeprefix(b"\xef\xbb\xbf").lstrip()
            if start[:1] == b"[":
                return b"[", start[1:]
            if start and start[:1] != b"{":
                raise TraceError(f"{self._source} is not JSON.")
            for key in _EVENTS_KEY.finditer(start):
                if self._add_header(start[: key.end()] + b"]}"):
                    return b'{"traceEvents":[', start[key.end() :]
            if len(start) > _ENOUGH_BYTES:
                raise TraceError(f"{self._source} is no trace: it does not begin like one.")
        if not start:
            raise TraceError(f"{self._source} is empty.")
        raise TraceError(f"{self._source} {_why_no_events(start)}.")

    def _add_header(self, text: bytes) -> bool:
        """Take what the trace says about itself from a JSON object; whether it was one."""
        for repair in (bytes, _clean):
            with suppress(*_BROKEN):
                self._merge_header(_ANY.decode(repair(text)))
                return True
        return False

    def _merge_header(self, fields: dict[str, Any]) -> None:
        self.header |= {name: fields[name] for name in _HEADER_FIELDS if fields.get(name) is not None}

    def _up_to_a_cut(self, text: bytes) -> tuple[list[Event], bytes]:
        """The events before the last cut that decodes, and the bytes after it."""
        cuts = _last_cuts(text)
        for cut in reversed(cuts[-_CUTS_TO_TRY:]):
            events = self._decode(text, cut.start() + 1)
            if events is not None:
                return events, text[cut.end() :]
        if cuts:
            return self._one_by_one(text)
        if len(text) > _ENOUGH_BYTES:
            raise TraceError(f"{self._source} is JSON but no trace: its list holds no events.")
        return [], text

    def _last(self, opening: bytes, text: bytes) -> list[Event]:
        """The events of the last bytes, and what the trace says after them."""
        if opening == b"[":
            text = text.rstrip()
            self.cut_off = not text.endswith(b"]")
            return self._last_events(text.removesuffix(b"]"))
        for repair in (bytes, _clean):
            whole = opening + repair(text)
            with suppress(*_BROKEN):
                header = _HEADER.decode(whole)
                self._merge_header({name: getattr(header, name) for name in _HEADER_FIELDS})
                return header.traceEvents
            with suppress(*_BROKEN):
                fields = _ANY.decode(whole)
                self._merge_header(fields)
                return self._by_field(fields["traceEvents"])
        end = text.rfind(b"]")
        closes_events = text[: max(end, 0)].rstrip().endswith(b"}")
        after = text[end + 1 :].strip().removeprefix(b",")
        self.cut_off = not (closes_events and self._add_header(b"{" + after))
        return self._last_events(text if self.cut_off else text[:end])

    def _last_events(self, text: bytes) -> list[Event]:
        """The events of the list's last bytes, of which something may be broken or missing."""
        events = self._decode(text, len(text))
        if events is None and self.cut_off:
            ends = [match.end() for match in _END_OF_EVENT.finditer(text)]
            events = self._decode(text, ends[-1]) if ends else []
        return self._one_by_one(text, to_the_end=True)[0] if events is None else events

    def _decode(self, text: bytes, end: int) -> list[Event] | None:
        """The events of the comma-separated JSON objects ``text[:end]``; None when they are not JSON."""
        listed = b"".join((b"[", memoryview(text)[:end], b"]"))
        for repair in (bytes, _clean):
            listed = repair(listed)
            with suppress(*_BROKEN):
                return _EVENTS.decode(listed)
            with suppress(*_BROKEN):
                return self._by_field(_ANY.decode(listed))
        return None

    def _by_field(self, items: list[Any]) -> list[Event]:
        """Events of which a field has an unusual type."""
        events = [_event(item) for item in items if isinstance(item, dict)]
        self.unreadable += len(items) - len(events)
        return events

    def _one_by_one(self, text: bytes, to_the_end: bool = False) -> tuple[list[Event], bytes]:
        """The events of a text of which some are no JSON, and the bytes after the last one."""
        events: list[Event] = []
        begin = piece = 0  # where the next event begins, and where the piece before the next cut does
        cuts = [(match.start() + 1, match.end()) for match in _BETWEEN_EVENTS.finditer(text)]
        for end, after in (*cuts, (len(text), len(text))) if to_the_end else cuts:
            # An event may hold objects, and so be several pieces; if one is broken, the next is whole.
            for start in dict.fromkeys((begin, piece)):
                found = self._decode(text[start:end], end - start)
                if found is not None:
                    self.unreadable += start != begin
                    events += found
                    begin = after
                    break
            else:
                if after - begin > _LONGEST_EVENT_BYTES:
                    self.unreadable += 1
                    begin = after
            piece = after
        if to_the_end and not self.cut_off:
            self.unreadable += begin < len(text)
        return events, text[begin:]


def _last_cuts(text: bytes) -> list[re.Match[bytes]]:
    """Where the text may be cut between events, of the last ones at least."""
    for tail in (1 << 14, 1 << 18, len(text)):
        cuts = list(_BETWEEN_EVENTS.finditer(text, max(0, len(text) - tail)))
        if cuts:
            return cuts
    return []


def _clean(text: bytes) -> bytes:
    """The text as valid JSON where its bytes, escapes or numbers were not."""
    text = text.decode("utf-8", "replace").encode().translate(_CONTROL_TO_SPACE)
    text = _BACKSLASH.sub(lambda match: match[0] if match[1] else rb"\\", text)
    return _NOT_A_NUMBER.sub(b":null", text)


def _event(fields: dict[str, Any]) -> Event:
    args = fields.get("args")
    args = args if isinstance(args, dict) else {}
    ph, cat, name = (str(fields.get(key) or "") for key in ("ph", "cat", "name"))
    return Event(
        ph=ph,
        cat=cat,
        name=name,
        ts=_number(fields.get("ts")),
        dur=_number(fields.get("dur")),
        pid=fields.get("pid"),
        tid=fields.get("tid"),
        args=Args(*(args.get(key) for key in Args.__struct_encode_fields__)),
    )


def _number(value: Any) -> float | int | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _why_no_events(text: bytes) -> str:
    try:
        _ANY.decode(text)
    except msgspec.DecodeError as error:
        return "is cut off before its first event" if "truncated" in str(error) else "is not JSON"
    except _BROKEN:
        return "is not JSON"
    return "is JSON but no trace: it has no list traceEvents"
