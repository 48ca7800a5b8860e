// The function: a JSON document and the steps to take with it in the request's body, the result as the answer.
//
// Exports wasi:http/incoming-handler itself rather than listening for fetch events: one instance then serves many calls.

import { getStderr } from 'wasi:cli/stderr@0.2.12';
import { getStdout } from 'wasi:cli/stdout@0.2.12';
import { Fields, OutgoingBody, OutgoingResponse, ResponseOutparam } from 'wasi:http/types@0.2.12';

import { Mistake, transform } from './steps.js';

// The manifest's body_limit refuses longer bodies before they get here.
const MOST_BODY = 1 << 20;
const CHUNK = 64n << 10n;
// How deeply a document may be nested; what walks over it (JSON.stringify, say) needs stack for every level.
const MOST_DEPTH = 200;
const [QUOTE, BACKSLASH, LIST, LIST_END, OBJECT, OBJECT_END] = new TextEncoder().encode('"\\[]{}');

const USAGE = `POST {"input": ..., "steps": [...]} as JSON; the answer is the input after the steps.

  {"op": "pick", "keys": ["name"]}              of an object or each object of a list, keep these keys
  {"op": "omit", "keys": ["name"]}              ... drop these keys
  {"op": "rename", "names": {"old": "new"}}     ... rename keys
  {"op": "map", "path": "a.b"}                  replace each item of a list by what stands at the path
  {"op": "map", "set": {"city": "address.city"}}   ... or add keys with what stands at paths
  {"op": "filter", "where": {"age": {"gte": 18}}}  keep the items for which all conditions hold:
                                                eq ne lt lte gt gte in contains exists; a plain value means eq
  {"op": "sort", "by": "age", "order": "desc"}  by a path or a list of paths
  {"op": "flatten", "depth": 1}                 lists within the list
  {"op": "group", "by": "city"}                 an object of lists
  {"op": "unique", "by": "id"}                  the first item of each value
  {"op": "slice", "from": 0, "to": 10}          a part of the list; negative counts from the end
  {"op": "count"}                               how many items
  {"op": "summarize", "path": "age"}            count, sum, min, max and mean of the numbers
`;

class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export const incomingHandler = {
  handle(request, responseOut) {
    const answer = answerTo(request);
    respond(answer, responseOut);
  },
};

function answerTo(request) {
  try {
    switch (request.method().tag) {
      case 'get':
      case 'head':
        return text(200, USAGE);
      case 'post':
      case 'put':
        return result(bodyOf(request));
      default:
        return { ...text(405, 'POST a document, or GET the usage\n'), allow: 'GET, HEAD, POST, PUT' };
    }
  } catch (error) {
    if (error instanceof Mistake) {
      return text(400, `${error.message}\n`);
    }
    if (error instanceof Refused) {
      return text(error.status, `${error.message}\n`);
    }
    if (error instanceof RangeError || error?.name === 'InternalError') {
      return text(400, 'the document is nested too deeply\n');
    }
    log(getStderr(), `${error}\n${error?.stack ?? ''}`);
    return text(500, 'the function failed; its log says why\n');
  }
}

function result(body) {
  const { input, steps } = parse(body);
  const output = transform(input, steps);
  const json = `${JSON.stringify(output)}\n`;
  log(getStdout(), `${body.length} octets in, ${steps.length} steps, ${json.length} characters out\n`);
  return { status: 200, type: 'application/json', body: new TextEncoder().encode(json) };
}

function parse(body) {
  refuseDepth(body);
  let document;
  try {
    document = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch (error) {
    throw new Refused(400, `the body is not JSON: ${error.message}`);
  }
  const known = ['input', 'steps'];
  const isObject = typeof document === 'object' && document !== null && !Array.isArray(document);
  if (!isObject || !known.every((key) => Object.hasOwn(document, key))) {
    throw new Refused(400, 'the body must be an object with "input" and "steps"');
  }
  const unknown = Object.keys(document).find((key) => !known.includes(key));
  if (unknown !== undefined) {
    throw new Refused(400, `${JSON.stringify(unknown)} is not known; give "input" and "steps"`);
  }
  return document;
}

/** Refuses a document nested deeper than MOST_DEPTH before it is parsed: a million brackets would become a million lists. */
function refuseDepth(body) {
  // A short document cannot hold so many levels, opened and closed, and is not looked through.
  if (body.length <= 2 * MOST_DEPTH) {
    return;
  }
  let depth = 0;
  let inText = false;
  for (let index = 0; index < body.length; index += 1) {
    const octet = body[index];
    if (inText) {
      if (octet === BACKSLASH) {
        index += 1;
      } else if (octet === QUOTE) {
        inText = false;
      }
    } else if (octet === QUOTE) {
      inText = true;
    } else if (octet === LIST || octet === OBJECT) {
      depth += 1;
      if (depth > MOST_DEPTH) {
        throw new Refused(400, `the document is nested deeper than ${MOST_DEPTH} levels; flatten it first`);
      }
    } else if (octet === LIST_END || octet === OBJECT_END) {
      depth -= 1;
    }
  }
}

function bodyOf(request) {
  const body = request.consume();
  const stream = body.stream();
  const chunks = [];
  let size = 0;
  try {
    for (;;) {
      const chunk = stream.blockingRead(CHUNK);
      size += chunk.length;
      if (size > MOST_BODY) {
        throw new Refused(413, `the body is longer than ${MOST_BODY} octets; send a smaller document`);
      }
      chunks.push(chunk);
    }
  } catch (error) {
    if (error instanceof Refused) {
      throw error;
    }
    if (error?.payload?.tag !== 'closed') {
      throw new Refused(400, 'the body cannot be read');
    }
  } finally {
    stream[Symbol.dispose]();
    body[Symbol.dispose]();
  }
  const whole = new Uint8Array(size);
  let start = 0;
  for (const chunk of chunks) {
    whole.set(chunk, start);
    start += chunk.length;
  }
  return whole;
}

function text(status, content) {
  return { status, type: 'text/plain; charset=utf-8', body: new TextEncoder().encode(content) };
}

/** A log that cannot be written is no reason to fail a call. */
function log(stream, line) {
  try {
    write(stream, new TextEncoder().encode(line));
  } catch {
    // Nothing is left to tell it to.
  } finally {
    stream[Symbol.dispose]();
  }
}

/** Writes in pieces of what one blocking write may carry at most. */
function write(stream, octets) {
  for (let start = 0; start < octets.length; start += 4096) {
    stream.blockingWriteAndFlush(octets.subarray(start, start + 4096));
  }
}

/** Sends the answer. When the caller has gone meanwhile, there is nobody left to tell. */
function respond({ status, type, allow, body: octets }, responseOut) {
  const encode = (value) => new TextEncoder().encode(value);
  const headers = [
    ['content-type', encode(type)],
    ['content-length', encode(String(octets.length))],
  ];
  if (allow !== undefined) {
    headers.push(['allow', encode(allow)]);
  }
  const response = new OutgoingResponse(Fields.fromList(headers));
  response.setStatusCode(status);
  const body = response.body();
  ResponseOutparam.set(responseOut, { tag: 'ok', val: response });
  try {
    const stream = body.write();
    try {
      write(stream, octets);
    } finally {
      stream[Symbol.dispose]();
    }
    OutgoingBody.finish(body, undefined);
  } catch (error) {
    log(getStderr(), `the answer was cut off: ${error}\n`);
  }
}
