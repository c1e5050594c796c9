"""Servers that speak S3, GCS and Azure, for as long as a command runs: object_store_servers.py AZURITE_FOLDER COMMAND...

S3 is moto. Nothing on PyPI, npm or Debian speaks the API of GCS that the client uses, which is S3's but for two things: a
condition has another name, and a bearer token signs nothing. So GCS is moto behind a door that changes these two, which shows
what the client sends and takes, and not what Google does. Azure is Azurite, where AZURITE_FOLDER has it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from email.utils import formatdate
from pathlib import Path

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

# What Azurite knows, and says so in its own documentation.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
SIGNED = "AWS4-HMAC-SHA256 Credential=test/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"

moto = DomainDispatcherApplication(create_backend_app)


def gcs(environ, start):
    environ["HTTP_AUTHORIZATION"] = SIGNED
    if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None) == "0":
        environ["HTTP_IF_NONE_MATCH"] = "*"
    return moto(environ, start)


class Quiet(WSGIRequestHandler):
    def log_request(self, *_):
        pass


def serve(app) -> str:
    """Serves an application until this process ends."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def put(url: str, **headers: str) -> None:
    request = urllib.request.Request(url, method="PUT", data=b"", headers={"content-type": "", **headers})
    urllib.request.urlopen(request, timeout=20).close()


def container(address: str, name: str) -> None:
    date = formatdate(usegmt=True)
    version = "2021-08-06"
    path = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    text = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{version}\n{path}"
    sign = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
    headers = {"x-ms-date": date, "x-ms-version": version, "Authorization": f"SharedKey {ACCOUNT}:{sign}"}
    put(f"{address}/{ACCOUNT}/{name}?restype=container", **headers)


def azurite(folder: Path) -> tuple[subprocess.Popen[str], str] | None:
    program = folder / "node_modules/azurite/dist/src/blob/main.js"
    if not program.exists():
        return None
    words = ["--inMemoryPersistence", "--blobHost", "127.0.0.1", "--blobPort", "0"]
    words += ["--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    child = subprocess.Popen(["node", program, *words], stdout=subprocess.PIPE, text=True)
    for line in child.stdout:
        if found := re.search(r"listens on (http://\S+)", line):
            threading.Thread(target=child.stdout.read, daemon=True).start()
            return child, found[1]
    raise SystemExit("Azurite ended before it listened")


def main() -> int:
    s3, gs = serve(moto), serve(gcs)
    put(f"{s3}/sbucket")
    put(f"{gs}/gbucket")
    urls = ["s3://sbucket", "gs://gbucket"]
    key = {"gcs_base_url": gs, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    env = {
        "AWS_ENDPOINT": s3,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(key),
    }
    azure = azurite(Path(sys.argv[1]))
    try:
        if azure:
            container(azure[1], "abucket")
            env |= {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": azure[1]}
            urls.append("az://abucket")
        env["RANKGUARD_TEST_OBJECT_STORES"] = " ".join(urls)
        return subprocess.run(sys.argv[2:], env=os.environ | env).returncode
    finally:
        if azure:
            azure[0].terminate()
            azure[0].wait()


if __name__ == "__main__":
    raise SystemExit(main())
