// {{name}}: a function in JavaScript. The network calls incomingHandler.handle once per request.
//
// One instance serves many calls, so module variables outlive a call: keep nothing of a caller in them.

import { getStdout } from 'wasi:cli/stdout@0.2.12';
import { Fields, OutgoingBody, OutgoingResponse, ResponseOutparam } from 'wasi:http/types@0.2.12';

// How much of a body is read; body_limit in fdn.toml refuses longer ones before they get here.
const MOST_BODY = 64 * 1024;

export const incomingHandler = {
  handle(request, responseOut) {
    const { status, text } = answer(request);
    log(`answered ${status}\n`);
    respond(status, text, responseOut);
  },
};

function answer(request) {
  switch (request.method().tag) {
    case 'get':
    case 'head':
      return { status: 200, text: 'hello, world\n' };
    case 'post':
      return { status: 200, text: `hello, ${new TextDecoder().decode(bodyOf(request)).trim()}\n` };
    default:
      return { status: 405, text: 'GET or POST\n' };
  }
}

/** The request's body, up to MOST_BODY. */
function bodyOf(request) {
  const body = request.consume();
  const stream = body.stream();
  const bytes = [];
  try {
    while (bytes.length < MOST_BODY) {
      bytes.push(...stream.blockingRead(BigInt(Math.min(MOST_BODY - bytes.length, 4096))));
    }
  } catch (error) {
    // The end of the body is told as an error.
    if (error?.payload?.tag !== 'closed') {
      throw error;
    }
  } finally {
    stream[Symbol.dispose]();
    body[Symbol.dispose]();
  }
  return new Uint8Array(bytes);
}

/** One line for `fdn logs {{name}}`. */
function log(line) {
  const stream = getStdout();
  try {
    stream.blockingWriteAndFlush(new TextEncoder().encode(line));
  } finally {
    stream[Symbol.dispose]();
  }
}

function respond(status, text, responseOut) {
  const encode = (value) => new TextEncoder().encode(value);
  const bytes = encode(text);
  const headers = [
    ['content-type', encode('text/plain; charset=utf-8')],
    ['content-length', encode(String(bytes.length))],
  ];
  const response = new OutgoingResponse(Fields.fromList(headers));
  response.setStatusCode(status);
  const body = response.body();
  ResponseOutparam.set(responseOut, { tag: 'ok', val: response });
  const stream = body.write();
  try {
    // One blocking write may carry 4096 bytes at most.
    for (let start = 0; start < bytes.length; start += 4096) {
      stream.blockingWriteAndFlush(bytes.subarray(start, start + 4096));
    }
  } finally {
    stream[Symbol.dispose]();
  }
  OutgoingBody.finish(body, undefined);
}
