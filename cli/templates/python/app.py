"""{{name}}: a function in Python. The network calls IncomingHandler.handle once per request.

Import every module here, at the top: this code runs once when the component is built, and its state is part of the component.
One instance serves many calls, so module variables outlive a call: keep nothing of a caller in them.
"""

from componentize_py_types import Err, Ok
from wit_world import exports
from wit_world.imports.streams import StreamError_Closed
from wit_world.imports.types import (
    Fields,
    IncomingRequest,
    Method_Get,
    Method_Head,
    Method_Post,
    OutgoingBody,
    OutgoingResponse,
    ResponseOutparam,
)

# How much of a body is read; body_limit in fdn.toml refuses longer ones before they get here.
MOST_BODY = 64 << 10


class IncomingHandler(exports.IncomingHandler):
    """What the network calls."""

    def handle(self, request: IncomingRequest, response_out: ResponseOutparam) -> None:
        status, text = answer(request)
        # For `fdn logs {{name}}`. The instance lives on after the call: without flush the line would wait in it.
        print(f"answered {status}", flush=True)
        respond(status, text, response_out)


def answer(request: IncomingRequest) -> tuple[int, str]:
    """The status and the text of the answer."""
    method = request.method()
    if isinstance(method, (Method_Get, Method_Head)):
        return 200, "hello, world\n"
    if isinstance(method, Method_Post):
        name = body_of(request).decode("utf-8", "replace").strip()
        return 200, f"hello, {name}\n"
    return 405, "GET or POST\n"


def body_of(request: IncomingRequest) -> bytes:
    """The request's body, up to MOST_BODY."""
    data = bytearray()
    with request.consume() as body, body.stream() as stream:
        try:
            while len(data) < MOST_BODY:
                data += stream.blocking_read(MOST_BODY - len(data))
        except Err as error:
            # The end of the body is told as an error.
            if not isinstance(error.value, StreamError_Closed):
                raise
    return bytes(data)


def respond(status: int, text: str, response_out: ResponseOutparam) -> None:
    """Sends the answer."""
    data = text.encode()
    headers = [("content-type", b"text/plain; charset=utf-8"), ("content-length", str(len(data)).encode())]
    response = OutgoingResponse(Fields.from_list(headers))
    response.set_status_code(status)
    body = response.body()
    ResponseOutparam.set(response_out, Ok(response))
    with body.write() as stream:
        # One blocking write may carry 4096 bytes at most.
        for start in range(0, len(data), 4096):
            stream.blocking_write_and_flush(data[start : start + 4096])
    OutgoingBody.finish(body, None)
