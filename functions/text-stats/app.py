"""The function: a text in the request's body, its statistics as JSON in the answer.

Every module is imported here, at the top: this code runs once when the component is built, and its state is part of the
component. What is read while building (the environment, say) would be frozen as well, so nothing is.
"""

import json
import sys
from urllib.parse import parse_qsl

from componentize_py_types import Err, Ok
from stats import statistics
from wit_world import exports
from wit_world.imports.streams import StreamError_Closed
from wit_world.imports.types import (
    Fields,
    IncomingRequest,
    Method_Get,
    Method_Head,
    Method_Post,
    Method_Put,
    OutgoingBody,
    OutgoingResponse,
    ResponseOutparam,
)

# The manifest's body_limit refuses longer bodies before they get here.
MOST_BODY = 1 << 20
MOST_TOP = 100
CHUNK = 64 << 10

USAGE = """\
POST a text (UTF-8) as the body; the answer is JSON: characters, words, lines, sentences, average word length, reading time
and the most frequent words.

  top   how many of the most frequent words, 0 to 100 (default 10)

Example: curl --data-binary @article.txt 'http://text-stats.fn.test/?top=5'
"""


class Refused(Exception):
    """A request that cannot be answered: the status, and a text that says what to do."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class IncomingHandler(exports.IncomingHandler):
    """What the network calls."""

    def handle(self, request: IncomingRequest, response_out: ResponseOutparam) -> None:
        method = request.method()
        try:
            if isinstance(method, (Method_Get, Method_Head)):
                respond(response_out, 200, "text/plain; charset=utf-8", USAGE)
            elif isinstance(method, (Method_Post, Method_Put)):
                respond(response_out, 200, "application/json", answer(request))
            else:
                raise Refused(405, "POST a text, or GET the usage")
        except Refused as refused:
            respond(response_out, refused.status, "text/plain; charset=utf-8", f"{refused}\n")


def answer(request: IncomingRequest) -> str:
    """The statistics of the request's body, as JSON."""
    top = top_of(request.path_with_query() or "/")
    octets = body_of(request)
    try:
        text = octets.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(400, f"the body is not UTF-8 (octet {error.start}); convert the text first") from None
    result = statistics(text, top)
    print(f"{len(octets)} octets, {result['words']} words")
    # The instance lives on after the call: without this the line would wait in it.
    sys.stdout.flush()
    return json.dumps(result, ensure_ascii=False) + "\n"


def top_of(path: str) -> int:
    """The `top` of the query."""
    top = 10
    for name, value in parse_qsl(path.partition("?")[2], keep_blank_values=True):
        if name != "top":
            raise Refused(400, f'"{name}" is not known; give top')
        # Only ASCII digits, and few of them: int() would also take signs, underscores and very long numbers.
        if not (value.isascii() and value.isdigit() and len(value) <= 4 and int(value) <= MOST_TOP):
            raise Refused(400, f'top must be a number from 0 to {MOST_TOP}, not "{value}"')
        top = int(value)
    return top


def body_of(request: IncomingRequest) -> bytes:
    """The request's body."""
    octets = bytearray()
    with request.consume() as body, body.stream() as stream:
        while True:
            try:
                octets += stream.blocking_read(CHUNK)
            except Err as error:
                if isinstance(error.value, StreamError_Closed):
                    return bytes(octets)
                raise Refused(400, "the body cannot be read") from None
            if len(octets) > MOST_BODY:
                raise Refused(413, f"the body is longer than {MOST_BODY} octets; send a shorter text")


def respond(response_out: ResponseOutparam, status: int, media_type: str, text: str) -> None:
    """Sends `text`. When the caller has gone meanwhile, there is nobody left to tell."""
    octets = text.encode()
    headers = [("content-type", media_type.encode()), ("content-length", str(len(octets)).encode())]
    if status == 405:
        headers.append(("allow", b"GET, HEAD, POST, PUT"))
    response = OutgoingResponse(Fields.from_list(headers))
    response.set_status_code(status)
    body = response.body()
    ResponseOutparam.set(response_out, Ok(response))
    try:
        with body.write() as stream:
            # The most that one blocking write may carry.
            for start in range(0, len(octets), 4096):
                stream.blocking_write_and_flush(octets[start : start + 4096])
        OutgoingBody.finish(body, None)
    except Err as error:
        print(f"the answer was cut off: {error.value}", file=sys.stderr, flush=True)
