"""A stand-in for the Hugging Face hub on this machine: the model page's facts and the files, with faults on demand."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class StandInHub:
    """Serves ``folder`` as the model ``name``. Every request is in ``asked``; faults are set by the test."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        self.asked: list[str] = []  # "GET /api/models/x" or "GET .../model.safetensors bytes=100-"
        self.cuts: list[int] = []  # the next weights' answers end after so many bytes
        self.refusal: tuple[int, str] | None = None  # status and X-Error-Code of every answer
        self.no_ranges = False
        self.said_sizes: dict[str, int] = {}  # sizes the facts tell wrongly
        self.damaged: set[str] = set()
        self.hold: threading.Event | None = None  # weights stop half way until it is set
        self.held = threading.Event()  # somebody waits there
        self.address = ""

    def facts(self) -> dict[str, Any]:
        siblings = []
        for name, content in sorted(self.files.items()):
            size = self.said_sizes.get(name, len(content))
            entry: dict[str, Any] = {"rfilename": name, "size": size, "blobId": _git_hash(content)}
            if name.endswith((".safetensors", ".bin")):
                entry["lfs"] = {"size": size, "sha256": hashlib.sha256(content).hexdigest(), "pointerSize": 130}
            siblings.append(entry)
        card = {"license": "apache-2.0"}
        return {"id": self.name, "modelId": self.name, "sha": COMMIT, "siblings": siblings, "cardData": card}


def _git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def serving(hub: StandInHub) -> Iterator[StandInHub]:
    """Serve on a free port of 127.0.0.1 while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

        def do_GET(self) -> None:
            span = self.headers.get("Range", "")
            hub.asked.append(f"GET {self.path} {span}".strip())
            if hub.refusal:
                status, code = hub.refusal
                self.send_response(status)
                self.send_header("X-Error-Code", code)
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif self.path.startswith(f"/api/models/{hub.name}"):
                self._send(json.dumps(hub.facts()).encode(), 200)
            elif match := re.fullmatch(rf"/{re.escape(hub.name)}/resolve/{COMMIT}/(.+)", self.path):
                self._send_file(match[1], span)
            else:
                self.send_response(404)
                self.send_header("X-Error-Code", "RepoNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()

        def _send_file(self, name: str, span: str) -> None:
            content = hub.files[name]
            if name in hub.damaged:
                content = content[:-1] + bytes([content[-1] ^ 1])
            start = int(span[6:].rstrip("-")) if span and not hub.no_ranges else 0
            weights = name.endswith(".safetensors")
            end = start + hub.cuts.pop(0) if weights and hub.cuts else len(content)
            self._send(content[start:], 206 if start else 200, content[start:end], weights)

        def _send(self, whole: bytes, status: int, sent: bytes | None = None, weights: bool = False) -> None:
            sent = whole if sent is None else sent
            self.send_response(status)
            self.send_header("Content-Length", str(len(whole)))
            self.end_headers()
            try:
                if weights and hub.hold is not None:
                    half = len(sent) // 2
                    self.wfile.write(sent[:half])
                    self.wfile.flush()
                    hub.held.set()
                    hub.hold.wait(60)
                    sent = sent[half:]
                self.wfile.write(sent)
            except OSError:
                pass  # the other side had enough
            self.close_connection = len(sent) != len(whole)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            if not isinstance(sys.exception(), ConnectionError):  # the other side had enough
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        if hub.hold is not None:
            hub.hold.set()
        server.shutdown()
        server.server_close()
