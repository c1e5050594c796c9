"""E-mail of notifications against aiosmtpd: `notify test`, and a real controller with jobs that fail."""

import asyncio
import contextlib
import email
import email.policy
import json
import logging
import pathlib
import ssl
import subprocess
import sys
import threading
import time
import warnings

from aiosmtpd.smtp import SMTP, AuthResult

LIMIT_S = 120
PASSWORD = "password-of-the-relay"
JOB_SECRET = "swordfish-of-the-job"
CONFIG = """
[controller]
notify_cluster = "test"
[controller.policy]
gather_ms = 200
settle_ms = 300
user_retries = 0
[[controller.notify]]
name = "plain"
kind = "email"
url = "smtp://127.0.0.1:{plain}"
from = "Rankguard <rankguard@example.com>"
to = ["ops@example.com", "Ada <ada@example.com>"]
[[controller.notify]]
name = "secure"
kind = "email"
url = "smtp://127.0.0.1:{secure}"
from = "rankguard@example.com"
to = ["ops@example.com"]
user = "rankguard"
secret_file = "password"
ca_file = "server/ca.pem"
"""
WRONG = """
[[controller.notify]]
name = "stranger"
kind = "email"
url = "smtp://127.0.0.1:{secure}"
from = "rankguard@example.com"
to = ["ops@example.com"]
user = "rankguard"
secret_file = "password"
[[controller.notify]]
name = "refused"
kind = "email"
url = "smtp://127.0.0.1:{plain}"
from = "rankguard@example.com"
to = ["nobody@example.com"]
[[controller.notify]]
name = "unencrypted"
kind = "email"
url = "smtp://127.0.0.1:{plain}"
from = "rankguard@example.com"
to = ["ops@example.com"]
user = "rankguard"
secret_file = "password"
"""


class Mailbox:
    """Handler of a server that records what it takes."""

    def __init__(self):
        self.mails = []

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("nobody@"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.mails.append((mail, envelope.rcpt_tos, session.ssl is not None))
        return "250 taken"


def authenticate(server, session, envelope, mechanism, data):
    is_right = (data.login, data.password) == (b"rankguard", PASSWORD.encode())
    return AuthResult(success=is_right)


def serve(folder):
    """Starts a plain server and one that requires STARTTLS and a password; returns mailboxes and ports."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "server/certificate.pem", folder / "server/key.pem")
    plain, secure = Mailbox(), Mailbox()
    loop = asyncio.new_event_loop()
    required = {"tls_context": tls, "require_starttls": True, "auth_required": True, "authenticator": authenticate}
    kinds = [lambda: SMTP(plain, loop=loop), lambda: SMTP(secure, loop=loop, **required)]
    servers = [loop.run_until_complete(loop.create_server(kind, "127.0.0.1", 0)) for kind in kinds]
    threading.Thread(target=loop.run_forever, daemon=True).start()
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    return (plain, secure), dict(zip(("plain", "secure"), ports))


def until(what, look):
    """Waits until `look` finds something."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {LIMIT_S} s for {what}")


def run(program, folder, *words, code=0):
    ran = subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
    assert ran.returncode == code, (words, ran.returncode, ran.stdout, ran.stderr)
    return ran.stdout


def tests_of_receivers(program, folder, mailboxes, ports):
    (folder / "wrong.toml").write_text((CONFIG + WRONG).format(**ports))
    shown = run(program, folder, "--config", "wrong.toml", "notify", "test", "--format", "json", code=1)
    assert PASSWORD not in shown, shown
    results = {line["receiver"]: line["result"] for line in json.loads(shown)}
    assert (results["plain"], results["secure"]) == ("delivered", "delivered"), results
    assert "550 no such mailbox" in results["refused"].replace("(550): ", "550 "), results
    assert "certificate" in results["stranger"].lower(), results
    assert results["unencrypted"] != "delivered", results
    (plain, secure) = mailboxes
    (mail, receivers, is_encrypted) = plain.mails.pop()
    assert receivers == ["ops@example.com", "ada@example.com"] and not is_encrypted, (receivers, is_encrypted)
    assert mail["Auto-Submitted"] == "auto-generated" and "test message" in mail["Subject"], mail
    (mail, receivers, is_encrypted) = secure.mails.pop()
    assert is_encrypted and not plain.mails and not secure.mails, (plain.mails, secure.mails)


@contextlib.contextmanager
def daemon(program, folder, log, *words):
    with open(folder / log, "ab") as output:
        process = subprocess.Popen([program, *words], cwd=folder, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def cases_of_a_controller(program, folder, mailboxes, ports):
    (folder / "test.toml").write_text(CONFIG.format(**ports))
    address_file = folder / "controller/controller.addr"
    listen = "127.0.0.1:0"
    jobs = ["first", "second"]
    for job in jobs:
        address_file.unlink(missing_ok=True)
        words = ["--config", "test.toml", "controller", "--listen", listen, "--state-dir", "controller"]
        with daemon(program, folder, "controller.log", *words):
            listen = until("the controller", lambda: address_file.exists() and address_file.read_text().strip())
            agent = ["agent", "--node", "n1", "--kernel-log", "off", "--controller", listen, "--state-dir", "agent"]
            with daemon(program, folder, "agent.log", *agent):
                command = ["--", "sh", "-c", "exit 3"]
                secret = f"TOKEN={JOB_SECRET}"
                run(program, folder, "run", "--controller", listen, "--name", job, "--env", secret, *command, code=3)
                ended = f"job {job} was stopped"
                for mailbox in mailboxes:
                    until(ended, lambda mails=mailbox.mails: any(ended in mail["Subject"] for mail, _, _ in mails))
    for mailbox in mailboxes:
        mails = [mail for mail, _, _ in mailbox.mails]
        ids = [mail["Message-ID"] for mail in mails]
        assert len(ids) == len(set(ids)), ids
        for mail in mails:
            # One thread a case, or an alarm: the id of the thread names it.
            thread = mail["References"].removeprefix("<test-").removesuffix("@rankguard.invalid>")
            kind, _, name = thread.partition("-")
            assert kind == "alarm" or f"case {name}: " in mail["Subject"], (thread, mail["Subject"])
            assert mail["In-Reply-To"] == mail["References"], mail.as_string()
            text = mail.as_string()
            assert JOB_SECRET not in text and PASSWORD not in text, text
            assert "More: rankguard " in mail.get_content(), text


def main():
    # A client that does not trust the server is expected.
    logging.getLogger("mail.log").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    run(program, folder, "identity", "init", "ca")
    issue = ["identity", "issue", "--ca", "ca", "--role", "controller", "--host", "127.0.0.1", "--out", "server"]
    run(program, folder, *issue)
    (folder / "password").write_text(PASSWORD + "\n")
    mailboxes, ports = serve(folder)
    tests_of_receivers(program, folder, mailboxes, ports)
    cases_of_a_controller(program, folder, mailboxes, ports)
    print("e-mail: plain, STARTTLS with a password, refusals, one thread a case over a restart: no finding")


main()
