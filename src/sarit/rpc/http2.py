"""One end of an HTTP/2 connection, a server's or a client's: reads and writes frames by h2, with flow control.

h2 parses and makes frames, without input or output.  `Http2End` writes h2's output to the transport once in a turn of
the event loop: one turn may end many calls, and each write would be a system call and wake the peer.

A body is passed to h2 as far as the flow-control windows of the other end allow, and only while the transport accepts
bytes.  The rest waits, one body for each call, until a window opens or the transport has room.

*Long frames.*  h2 formats each received frame in hexadecimal for a trace, and drops the text: that takes longer than
all else of a long frame.  So a server passes long DATA frames of open calls to these, past h2 (`rpc/frames.py`), and
this module bounds their bytes by the window, and sends the credit for them.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import RemoteSettingsChanged, WindowUpdated
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from sarit.rpc.limits import LONG_CREDIT_BYTES, WIDE_FRAME_BYTES, WIDE_WINDOW_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from h2.events import Event

    Headers: TypeAlias = Sequence[tuple[str, str]]

_LEAST_WINDOW: Final = 65_535  # the window of a new connection
_NO_LIMIT: Final = (1 << 31) - 1
_WINDOW_UPDATE: Final = struct.Struct(">5sII")
_WINDOW_UPDATE_HEAD: Final = bytes((0, 0, 4, 8, 0))  # length, type, flags


def _configuration(client_side: bool) -> H2Configuration:
    # Skip h2's checks of headers, which take time: callers check the headers that they use.
    return H2Configuration(
        client_side=client_side, header_encoding="ascii", validate_inbound_headers=False,
        validate_outbound_headers=False, normalize_inbound_headers=False, normalize_outbound_headers=False,
    )  # fmt: skip


_SERVER: Final = _configuration(False)
_CLIENT: Final = _configuration(True)


class _Unsent:
    """The unsent part of a reply or a request."""

    __slots__ = ("at", "body", "head", "sent", "trailers")

    def __init__(self, head: Headers, body: bytes, trailers: Headers | None) -> None:
        self.head: Headers | None = head
        self.body = body
        self.at = 0  # how many bytes of the body are sent
        self.trailers = trailers
        self.sent: asyncio.Future[None] | None = None


class Http2End:
    """One end of an HTTP/2 connection on a transport."""

    __slots__ = ("_credit", "_flush_is_due", "_h2", "_long_bytes", "_owed_bytes", "_transport", "_unsent", "_writable")

    def __init__(self, transport: asyncio.Transport, *, window_bytes: int, most_calls: int | None = None) -> None:
        """Begin the connection of a server that announces `most_calls`, or (None) of a client.

        h2 would end a connection with more calls than the announced limit, which a client may not know yet.  So h2 gets
        no limit, and the server refuses each call beyond it."""
        self._transport = transport
        self._flush_is_due = False
        self._writable = True
        self._long_bytes = 0  # of long frames that the other end has no credit for
        self._owed_bytes = 0  # acknowledged ones that are not in credit yet
        self._credit = bytearray()  # WINDOW_UPDATE frames to send
        self._unsent: dict[int, _Unsent] = {}
        self._h2 = H2Connection(_CLIENT if most_calls is None else _SERVER)
        settings = self._h2.local_settings
        settings[SettingCodes.INITIAL_WINDOW_SIZE] = window_bytes
        if most_calls is None:
            settings[SettingCodes.ENABLE_PUSH] = 0
            settings[SettingCodes.MAX_FRAME_SIZE] = WIDE_FRAME_BYTES
            self._h2.max_inbound_frame_size = WIDE_FRAME_BYTES
        else:
            settings[SettingCodes.MAX_CONCURRENT_STREAMS] = most_calls
        settings.acknowledge()  # the settings are announced now, and hold from the beginning
        self._h2.initiate_connection()
        if window_bytes > _LEAST_WINDOW:
            self._h2.increment_flow_control_window(window_bytes - _LEAST_WINDOW)
        if most_calls is not None:
            settings[SettingCodes.MAX_CONCURRENT_STREAMS] = _NO_LIMIT
            settings.acknowledge()
        self.flush()

    def __repr__(self) -> str:
        return f"<Http2End, {len(self._unsent)} bodies wait>"

    @property
    def most_calls(self) -> int:
        """How many concurrent calls the other end accepts, by its last settings."""
        return self._h2.remote_settings.max_concurrent_streams

    def receive(self, data: bytes | bytearray) -> list[Event]:
        """Read frames, and return their events.  Raises ProtocolError, and any error of the parsers for bad bytes."""
        events = self._h2.receive_data(data)
        if self._unsent and any(type(event) in (WindowUpdated, RemoteSettingsChanged) for event in events):
            self._send_unsent()
        self._flush_soon()
        return events

    def next_stream(self) -> int:
        """Return the stream id for a client's next call.  Raises ProtocolError: all ids are used up."""
        return self._h2.get_next_available_stream_id()

    def send(
        self, stream: int, head: Headers, body: bytes = b"", trailers: Headers | None = None
    ) -> asyncio.Future[None] | None:
        """Send this end's whole part of a call.  Returns a future that is set when all is sent; None: all is sent.

        Raises ProtocolError if the other end does not accept a new stream."""
        unsent = _Unsent(head, body, trailers)
        if self._advance(stream, unsent):
            self._flush_soon()
            return None
        self._unsent[stream] = unsent
        unsent.sent = asyncio.get_running_loop().create_future()
        return unsent.sent

    def _advance(self, stream: int, unsent: _Unsent) -> bool:
        """Send as much as the other end accepts now.  Returns whether that was all."""
        if not self._writable:
            return False
        h2, body, trailers = self._h2, unsent.body, unsent.trailers
        if unsent.head is not None:
            h2.send_headers(stream, unsent.head, end_stream=not body and trailers is None)
            unsent.head = None
        while left := len(body) - unsent.at:
            size = min(left, h2.local_flow_control_window(stream), h2.max_outbound_frame_size)
            if size <= 0:
                self._flush_soon()
                return False
            h2.send_data(stream, body[unsent.at : unsent.at + size], end_stream=size == left and trailers is None)
            unsent.at += size
        if trailers is not None:
            h2.send_headers(stream, trailers, end_stream=True)
        return True

    def _send_unsent(self) -> None:
        for stream, unsent in list(self._unsent.items()):
            try:
                if not self._advance(stream, unsent):
                    continue
            except ProtocolError:
                pass  # the other end has reset the stream, and its event follows
            self.forget(stream)
        self._flush_soon()

    def forget(self, stream: int) -> bool:
        """Drop the unsent part of a call.  Returns whether there was one."""
        unsent = self._unsent.pop(stream, None)
        if unsent is not None and unsent.sent is not None and not unsent.sent.done():
            unsent.sent.set_result(None)
        return unsent is not None

    def acknowledge(self, stream: int, size: int) -> None:
        """Give the other end flow-control credit for `size` received bytes."""
        if size:
            with suppress(ProtocolError):
                self._h2.acknowledge_received_data(size, stream)
            self._flush_soon()

    def counts_long(self, size: int) -> bool:
        """Count a long DATA frame, which h2 does not see.  Returns False: the other end had no credit for it."""
        self._long_bytes += size
        return self._long_bytes <= WIDE_WINDOW_BYTES

    def acknowledge_long(self, size: int) -> None:
        """Give the connection credit for bytes of long frames, some at a time."""
        self._owed_bytes += size
        if self._owed_bytes >= LONG_CREDIT_BYTES:
            self._long_bytes -= self._owed_bytes
            self.credit(0, self._owed_bytes)
            self._owed_bytes = 0

    def credit(self, stream: int, size: int) -> None:
        """Send flow-control credit for bytes that h2 has not seen; h2 would add it to its own window for ever."""
        self._credit += _WINDOW_UPDATE.pack(_WINDOW_UPDATE_HEAD, stream, size)
        self._flush_soon()

    def widen(self, window_bytes: int, frame_bytes: int) -> None:
        """Let the other end send so many bytes, on each stream and in all, before it waits for credit, and in longer
        frames."""
        with suppress(ProtocolError):
            changed: dict[SettingCodes | int, int] = {
                SettingCodes.INITIAL_WINDOW_SIZE: window_bytes,
                SettingCodes.MAX_FRAME_SIZE: frame_bytes,
            }
            self._h2.update_settings(changed)
            self._h2.increment_flow_control_window(window_bytes - _LEAST_WINDOW)
            self._flush_soon()

    def reset(self, stream: int, code: ErrorCodes = ErrorCodes.CANCEL) -> None:
        """End a call, unless it has ended."""
        with suppress(ProtocolError):
            self._h2.reset_stream(stream, code)
            self._flush_soon()

    def ping(self, data: bytes) -> None:
        """Send a ping."""
        with suppress(ProtocolError):
            self._h2.ping(data)
            self._flush_soon()

    def go_away(self, code: ErrorCodes = ErrorCodes.NO_ERROR) -> None:
        """Send GOAWAY."""
        with suppress(ProtocolError):
            self._h2.close_connection(code)
        self.flush()

    def pause_writing(self) -> None:
        """Hold bodies back, because the transport accepts no more bytes."""
        self._writable = False

    def resume_writing(self) -> None:
        """Go on sending bodies."""
        self._writable = True
        self._send_unsent()

    def _flush_soon(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Write h2's output to the transport."""
        self._flush_is_due = False
        data = self._h2.data_to_send()
        if self._credit:  # h2's output ends with a whole frame
            data += bytes(self._credit)
            self._credit.clear()
        if data and not self._transport.is_closing():
            self._transport.write(data)
