"""Prints the id of a run of the workflow that is named, once a gateway has told of one."""

import json
import os
import sys
import time
from urllib.request import Request, urlopen

URL = os.environ["FDN_URL"]
TESTER = {"user": "tester", "password": os.environ["FDN_TESTER_PASSWORD"]}
PATIENCE_S = 60


def ask(path, body=None, token=None):
    """The answer to a request."""
    headers = {"content-type": "application/json"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(URL + path, data, headers), timeout=30) as answer:
        return json.load(answer)


token = ask("/v1/login", TESTER)["token"]
end = time.monotonic() + PATIENCE_S
while not (runs := ask(f"/v1/apps/{sys.argv[1]}/runs", token=token)):
    if time.monotonic() > end:
        sys.exit("no gateway has told of a run")
    time.sleep(0.2)
print(runs[0]["run"])
