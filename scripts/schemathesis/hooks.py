"""What schemathesis must know of this network: who calls what, and that a session may end under its hands.

Operations for people get a session of the user `tester`, an admin whom nothing that is tried touches (the first user's password is changed, for
one). Some operations end the session they came with: an answer 401 makes the
next call log in anew. That is done from an address of its own, because logins that are tried and fail make their address wait.
"""

import http.client
import json
import os
import threading
from urllib.parse import urlsplit

import schemathesis

BASE = urlsplit(os.environ["FDN_URL"])
TESTER = {"user": "tester", "password": os.environ["FDN_TESTER_PASSWORD"]}
ADDRESS = ("127.0.0.99", 0)
TIMEOUT = 60
NODE = "eu-west-1"
STREAMS = {"/v1/events", "/v1/apps/{app}/logs"}


def log_in():
    """A new session's token."""
    connection = http.client.HTTPConnection(BASE.hostname, BASE.port, timeout=TIMEOUT, source_address=ADDRESS)
    try:
        connection.request("POST", "/v1/login", json.dumps(TESTER), {"content-type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"no session: {answer.status} {body!r}")
        return json.loads(body)["token"]
    finally:
        connection.close()


class Session:
    """The token of the tester's session."""

    def __init__(self):
        self.lock = threading.Lock()
        self.token = None

    def get(self):
        with self.lock:
            if self.token is None:
                self.token = log_in()
            return self.token

    def forget(self):
        with self.lock:
            self.token = None


session = Session()


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Answers must have a status that stands in the document by its number: `default` says only what else a client may meet."""
    for item in raw_schema["paths"].values():
        for operation in item.values():
            if len(operation.get("responses", {})) > 1:
                operation["responses"].pop("default", None)


@schemathesis.hook
def before_call(context, case, kwargs):
    """Credentials by the kind that the document names."""
    schemes = case.operation.definition.raw.get("security", [{}])[0]
    headers = case.headers if case.headers is not None else {}
    if "session" in schemes:
        headers["authorization"] = f"Bearer {session.get()}"
    case.headers = headers
    # Without its only node the network could not be asked for anything that runs.
    if case.method == "DELETE" and case.operation.path == "/v1/nodes/{node}" and case.path_parameters.get("node") == NODE:
        case.path_parameters["node"] = "nobody-1"
    # Nor could the tester log in again with another password, or none.
    if case.method != "GET" and (case.path_parameters or {}).get("user") == TESTER["user"]:
        case.path_parameters["user"] = "nobody"
    # A stream that goes on would be read until the limit on one answer: what there is now has the same shape.
    if case.operation.path in STREAMS and case.method == "GET":
        case.query = {**(case.query or {}), "follow": "false"}


@schemathesis.hook
def after_call(context, case, response):
    """A session that has ended is not used again."""
    if response.status_code == 401:
        session.forget()
