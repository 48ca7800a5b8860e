"""As much of a Kubernetes API server as Helm needs to install and upgrade a release: objects are kept as they come, in memory. It checks nothing."""

import base64
import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse


# What bodies in Kubernetes' other form begin with. Helm's records of a release, which are Secrets, come so; answers may be JSON all the same.
PROTOBUF = b"k8s\x00"


def fields(data):
    """Number and content of each field of a message; what is no text or message is left out."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        field, kind = divmod(number(), 8)
        length = number()
        if kind == 2:
            yield field, data[at : at + length]
            at += length


def pairs(message, field):
    """A map within a message."""
    entries = [dict(fields(content)) for found, content in fields(message) if found == field]
    return {entry[1].decode(): entry.get(2, b"") for entry in entries}


def secret(data):
    """A Secret that came as protobuf (k8s.io/api/core/v1/generated.proto)."""
    message = dict(fields(data[len(PROTOBUF) :]))[2]
    parts = dict(fields(message))
    about = dict(fields(parts[1]))
    labels = {key: value.decode() for key, value in pairs(parts[1], 11).items()}
    metadata = {"name": about[1].decode(), "namespace": about.get(3, b"").decode(), "labels": labels}
    data = {key: base64.b64encode(value).decode() for key, value in pairs(message, 2).items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": parts.get(3, b"").decode(), "data": data}


def holds(one, patch):
    """Whether a patch of tables says what is so already."""
    return all(holds(one.get(key), value) if isinstance(value, dict) and isinstance(one.get(key), dict) else one.get(key) == value for key, value in patch.items())


class ApiServer:
    """Knows the kinds that it is told of, as (apiVersion, kind, whether they have a namespace)."""

    def __init__(self, kinds):
        self.kinds = sorted({*kinds, ("v1", "Secret", True)})
        self.objects = {}
        self.changes = []
        self.lock = threading.Lock()
        handler = type("Bound", (Handler,), {"api": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    @staticmethod
    def plural(kind):
        return f"{kind.lower()}s"

    def groups(self):
        return sorted({version for version, _, _ in self.kinds if "/" in version})

    def discovery(self, path):
        """The answer to a question of what there is, or None."""
        if path == "/version":
            return {"major": "1", "minor": "37", "gitVersion": "v1.37.0"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            versions = [{"name": one.split("/")[0], "versions": [{"groupVersion": one, "version": one.split("/")[1]}]} for one in self.groups()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": versions}
        version = path.removeprefix("/apis/").removeprefix("/api/")
        if version in {one for one, _, _ in self.kinds}:
            verbs = ["create", "delete", "get", "list", "patch", "update"]
            resources = [
                {"name": self.plural(kind), "singularName": kind.lower(), "kind": kind, "namespaced": namespaced, "verbs": verbs}
                for one, kind, namespaced in self.kinds
                if one == version
            ]
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
        return None


class Handler(BaseHTTPRequestHandler):
    """One request. An object is known by the path at which it is read."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def missing(self):
        self.answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"})

    def body(self):
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        return secret(data) if data.startswith(PROTOBUF) else json.loads(data)

    def keep(self, path, one, verb, status):
        one["metadata"].setdefault("uid", str(uuid.uuid4()))
        one["metadata"]["resourceVersion"] = str(len(self.api.changes) + 1)
        self.api.objects[path] = one
        self.api.changes.append((verb, path))
        self.answer(status, one)

    def do_GET(self):
        url = urlparse(self.path)
        found = self.api.discovery(url.path)
        with self.api.lock:
            if found is None:
                found = self.api.objects.get(url.path)
            kind = {self.api.plural(kind): kind for _, kind, _ in self.api.kinds}.get(url.path.rsplit("/", 1)[1])
            if found is None and kind:
                found = self.listed(url, kind)
        if found is None:
            self.missing()
        else:
            self.answer(200, found)

    def listed(self, url, kind):
        wanted = dict(pair.split("=") for pair in parse_qs(url.query).get("labelSelector", [""])[0].split(",") if pair)
        below = [one for path, one in self.api.objects.items() if path.rsplit("/", 1)[0] == url.path]
        items = [one for one in below if all(one["metadata"].get("labels", {}).get(key) == value for key, value in wanted.items())]
        return {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {}, "items": items}

    def do_POST(self):
        one = self.body()
        with self.api.lock:
            self.keep(f"{urlparse(self.path).path}/{one['metadata']['name']}", one, "create", 201)

    def do_PUT(self):
        one = self.body()
        with self.api.lock:
            self.keep(urlparse(self.path).path, one, "update", 200)

    def do_PATCH(self):
        patch = self.body()
        with self.api.lock:
            path = urlparse(self.path).path
            one = self.api.objects[path]
            # Helm sends some fields although they are as they were.
            if not holds(one, patch):
                self.api.changes.append((f"patch {json.dumps(patch)[:300]}", path))
            self.answer(200, one)

    def do_DELETE(self):
        with self.api.lock:
            path = urlparse(self.path).path
            self.api.changes.append(("delete", path))
            found = self.api.objects.pop(path, None)
        if found is None:
            self.missing()
        else:
            self.answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
