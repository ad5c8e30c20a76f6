"""A server on this machine that speaks the paths of the Hugging Face Hub which huggingface_hub asks for:
what a model holds, its files (large ones elsewhere, behind a redirect, in ranges), uploads."""

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = ".safetensors"


class Hub:
    """Serves a folder as the model `name`. Tests change its members between and during requests."""

    def __init__(self, name, folder):
        self.name = name
        self.commit = COMMIT
        self.files = {f.relative_to(folder).as_posix(): f.read_bytes()
                      for f in sorted(folder.rglob("*")) if f.is_file()}
        self.sums = {}  # file -> what the hub says its SHA-256 is, where that is not so
        self.cuts = {}  # file -> how many transfers break off half way
        self.spoiled = {}  # file -> how many transfers have a wrong byte
        self.got = []  # (file, first byte) of every transfer from the CDN that is no header
        self.on_get = lambda file: None  # before such a transfer
        self.tokens = []  # seen by the CDN
        self.uploaded = {}
        self.made = []  # repositories
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"hub": self}))
        self.server.daemon_threads = True
        port = self.server.server_address[1]
        self.address = f"http://127.0.0.1:{port}"
        self.cdn = f"http://localhost:{port}"  # another host, as that of the hub is
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def sha256(self, file):
        return self.sums.get(file) or hashlib.sha256(self.files[file]).hexdigest()

    def tree(self):
        listed = []
        for file, data in self.files.items():
            about = {"type": "file", "path": file, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            if file.endswith(LARGE):
                about["lfs"] = {"oid": self.sha256(file), "size": len(data), "pointerSize": 134}
            listed.append(about)
        return listed

    def info(self):
        siblings = []
        for file, data in self.files.items():
            about = {"rfilename": file, "size": len(data), "blobId": hashlib.sha1(data).hexdigest()}
            if file.endswith(LARGE):
                about["lfs"] = {"sha256": self.sha256(file), "size": len(data), "pointerSize": 134}
            siblings.append(about)
        return {"id": self.name, "modelId": self.name, "sha": self.commit, "private": False, "tags": [],
                "downloads": 0, "likes": 0, "lastModified": "2026-01-02T03:04:05.000Z", "siblings": siblings}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub = None

    def log_message(self, *words):
        pass

    def send(self, status, body=b"", headers=(), kind="application/json", length=None):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_json(self, value, status=200):
        self.send(status, json.dumps(value).encode())

    def missing(self):
        self.send(404, b'{"error":"not found"}', [("X-Error-Code", "RepoNotFound")])

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub, path = self.hub, self.path.split("?")[0]
        if path == "/api/whoami-v2":
            signed_in = "authorization" in self.headers
            return self.send_json({"name": "me", "type": "user"} if signed_in else {}, 200 if signed_in else 401)
        if path.startswith("/cdn/"):
            return self.transfer(path.removeprefix("/cdn/"))
        if re.fullmatch(f"/api/models/{hub.name}(/revision/[^/]+)?", path):
            return self.send_json(hub.info())
        if re.fullmatch(f"/api/models/{hub.name}/tree/[^/]+", path):
            return self.send_json(hub.tree())
        found = re.fullmatch(f"/{hub.name}/resolve/([^/]+)/(.+)", path)
        if found is None or found[1] not in (hub.commit, "main") or found[2] not in hub.files:
            return self.missing()
        return self.file(found[2])

    def file(self, file):
        hub, data = self.hub, self.hub.files[file]
        commit = ("X-Repo-Commit", hub.commit)
        if file.endswith(LARGE):
            return self.send(302, b"", [commit, ("Location", f"{hub.cdn}/cdn/{file}"),
                                        ("X-Linked-Etag", f'"{hub.sha256(file)}"'),
                                        ("X-Linked-Size", str(len(data)))])
        return self.send(200, data, [commit, ("ETag", f'"{hashlib.sha1(data).hexdigest()}"')])

    def transfer(self, file):
        hub, data = self.hub, self.hub.files[file]
        hub.tokens.append(self.headers.get("authorization"))
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", ""))
        first = int(asked[1]) if asked else 0
        end = min(int(asked[2]) + 1 if asked and asked[2] else len(data), len(data))
        body = bytearray(data[first:end])
        headers = [("Accept-Ranges", "bytes"), ("ETag", f'"{hub.sha256(file)}"')]
        if asked:
            headers.append(("Content-Range", f"bytes {first}-{end - 1}/{len(data)}"))
        status = 206 if asked else 200
        if self.command == "HEAD" or (asked and asked[2]):
            return self.send(status, body, headers)
        hub.on_get(file)
        hub.got.append((file, first))
        if hub.spoiled.get(file, 0) > 0:
            hub.spoiled[file] -= 1
            body[-1] ^= 1
        if hub.cuts.get(file, 0) > 0:
            hub.cuts[file] -= 1
            self.send(status, body[:len(body) // 2], headers, length=len(body))
            self.close_connection = True
            return None
        return self.send(status, body, headers)

    def do_POST(self):
        hub, path = self.hub, self.path.split("?")[0]
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if path == "/api/repos/create":
            hub.made.append(json.loads(body))
            return self.send_json({"url": f"{hub.address}/{hub.made[-1].get('organization')}/{hub.made[-1]['name']}"})
        if path.endswith("/preupload/main"):
            files = json.loads(body)["files"]
            return self.send_json({"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False}
                                             for f in files]})
        if path.endswith("/commit/main"):
            for line in body.splitlines():
                item = json.loads(line)
                if item["key"] == "file":
                    hub.uploaded[item["value"]["path"]] = base64.b64decode(item["value"]["content"])
            return self.send_json({"success": True, "commitOid": COMMIT,
                                   "commitUrl": f"{hub.address}/me/new/commit/{COMMIT}"})
        if path == "/api/validate-yaml":
            return self.send_json({"errors": [], "warnings": []})
        return self.missing()
