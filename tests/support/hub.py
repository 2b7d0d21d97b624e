"""A small Hugging Face hub on this machine, for the hub's own client: repositories, commits, downloads."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c" * 40


@contextmanager
def local_hub() -> Iterator[tuple[str, dict[str, dict[str, bytes]]]]:
    """Its address, and the files of each repository."""
    repositories: dict[str, dict[str, bytes]] = {}

    class Hub(BaseHTTPRequestHandler):
        def answer(self, content: object, code: int = 200, **headers: str) -> None:
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(code)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            where = self.path.partition("?")[0]
            repo = "/".join(where.split("/")[3:5])
            if where == "/api/repos/create":
                asked = json.loads(sent)
                repo = f"{asked.get('organization') or 'someone'}/{asked['name']}"
                repositories.setdefault(repo, {})
                self.answer({"url": f"{address}/{repo}", "id": repo})
            elif where == "/api/validate-yaml":
                self.answer({"errors": [], "warnings": []})
            elif "/preupload/" in where:
                files = [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                         for f in json.loads(sent)["files"]]  # fmt: skip
                self.answer({"files": files})
            elif "/commit/" in where:
                for line in map(json.loads, sent.splitlines()):
                    if line["key"] == "file":
                        repositories[repo][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                self.answer({"success": True, "commitOid": COMMIT, "commitUrl": f"{address}/{repo}/commit/{COMMIT}"})
            else:
                self.answer({"error": where}, 404)

        def do_GET(self) -> None:
            where = self.path.partition("?")[0].split("/")
            if where[1:3] == ["api", "models"] and "/".join(where[3:5]) in repositories:
                repo = "/".join(where[3:5])
                listed = [{"rfilename": name} for name in repositories[repo]]
                tree = [{"type": "file", "path": n, "size": len(f), "oid": "0"} for n, f in repositories[repo].items()]
                about = {"id": repo, "sha": COMMIT, "siblings": listed, "private": False, "tags": [], "downloads": 0}
                self.answer(tree if "tree" in where else about)
            elif "resolve" in where and where[5] in repositories.get("/".join(where[1:3]), {}):
                found = repositories["/".join(where[1:3])][where[5]]
                self.answer(found, ETag=f'"{hashlib.sha1(found).hexdigest()}"', X_Repo_Commit=COMMIT)
            elif "/".join(where[1:3]) in repositories:
                self.answer({"error": "Entry not found"}, 404, X_Error_Code="EntryNotFound")
            else:
                self.answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield address, repositories
    finally:
        server.shutdown()
        server.server_close()
