"""Service discovery for nginx: its list of upstreams follows the view, and one cut is one reload.

Two commands, each in a terminal of its own:

    python examples/nginx_upstreams.py proxy
    python examples/nginx_upstreams.py backends 10

`curl http://127.0.0.1:8080/` is answered by one of the backends. Start more of them, stop some with Ctrl-C
(they leave), kill some with `kill -9` (they fail): the first terminal prints one line for each cut, however
many backends it is about.

It uses `rota.blocking`, since nothing here needs an event loop.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import rota

PRESETS = {"lan": rota.Settings.lan, "local": rota.Settings.local}

NGINX_CONF = """\
worker_processes 1;
pid nginx.pid;
error_log error.log notice;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path temporary; proxy_temp_path temporary; fastcgi_temp_path temporary;
    uwsgi_temp_path temporary; scgi_temp_path temporary;
    upstream backends {{
        include {upstreams};
    }}
    server {{
        listen {listen};
        location / {{
            proxy_pass http://backends;
            # What a dead backend leaves unanswered is asked again at another, so that no client notices.
            proxy_next_upstream error timeout;
            proxy_connect_timeout 1s;
        }}
    }}
}}
"""

NOBODY = "server 127.0.0.1:9 down;  # nginx wants at least one line\n"


def render(view: rota.Configuration) -> str:
    """The upstream list that belongs to a view: the same on every proxy, since the view is."""
    servers = {
        member.name: member.attributes["http"] for member in view.members if "http" in member.attributes
    }
    lines = [
        f"server {address};  # {name}\n" for name, address in sorted(servers.items()) if is_safe(address)
    ]
    return "".join(lines) or NOBODY


def is_safe(address: str) -> bool:
    """Whether text from another member's metadata may go into a configuration file."""
    try:
        ipaddress.ip_address(rota.Address.parse(address).host)
    except ValueError:
        return False
    return True


class Nginx:
    """One nginx with a directory of its own, and the upstream list it has read last."""

    def __init__(self, directory: Path, listen: str, program: str = "nginx") -> None:
        self.directory = directory
        self._listen = listen
        self._program = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin") or program
        self._upstreams = directory / "upstreams.conf"
        self.reloads = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """nginx runs, at first without backends, as long as the block."""
        self._upstreams.write_text(NOBODY)
        self._write_configuration("nginx.conf", self._upstreams)
        process = subprocess.Popen(self._command("nginx.conf", "-g", "daemon off;"))
        try:
            while not (self.directory / "nginx.pid").exists():
                if process.poll() is not None:
                    raise SystemExit(f"nginx did not start: see {self.directory / 'error.log'}")
                time.sleep(0.01)
            yield
        finally:
            process.terminate()
            process.wait()

    def install(self, upstreams: str) -> str:
        """Make this the list, unless it is already; says in words what was done.

        nginx judges the new list first. If it refuses it, the old file stays as it is, untouched.
        """
        if upstreams == self._upstreams.read_text():
            return "no backend changed"
        begin = time.perf_counter()
        candidate = self._upstreams.with_suffix(".candidate")
        candidate.write_text(upstreams)
        self._write_configuration("candidate.conf", candidate)
        test = subprocess.run(self._command("candidate.conf", "-t", "-q"), capture_output=True, text=True)
        if test.returncode != 0:
            return f"REFUSED by nginx, which keeps the old list: {test.stderr.strip()}"
        os.replace(candidate, self._upstreams)  # in one step: a reader sees the old list or the new one
        subprocess.run(self._command("nginx.conf", "-s", "reload"), check=True)
        self.reloads += 1
        return f"reload {self.reloads}, after {(time.perf_counter() - begin) * 1000:.0f} ms"

    def _write_configuration(self, name: str, upstreams: Path) -> None:
        text = NGINX_CONF.format(listen=self._listen, upstreams=upstreams)
        (self.directory / name).write_text(text)

    def _command(self, configuration: str, *arguments: str) -> list[str]:
        return [
            self._program, "-p", str(self.directory), "-e", "error.log", "-c", configuration, *arguments,
        ]  # fmt: skip


def run_proxy(options: argparse.Namespace) -> None:
    """Be a member, and let nginx follow the view."""
    directory = Path(options.directory or tempfile.mkdtemp(prefix="nginx-upstreams-"))
    nginx = Nginx(directory, options.http)
    with (
        nginx.running(),
        rota.blocking.join(
            options.listen, options.seed, name="proxy", settings=PRESETS[options.preset]()
        ) as cluster,
    ):
        print(f"http://{options.http}/ is served by nginx in {directory}; member {cluster.me}", flush=True)
        for change in cluster.changes():
            # While nginx is reloading, further cuts are merged: the list is always that of the latest view.
            upstreams = render(change.view)
            done = nginx.install(upstreams)
            counts = [("+", change.joined), ("-", change.left), ("x", change.failed), ("!", change.evicted)]
            difference = " ".join(f"{sign}{len(members)}" for sign, members in counts if members)
            backends = 0 if upstreams == NOBODY else upstreams.count("\n")
            print(
                f"view {change.view.epoch:4d}: {backends:4d} backends  {difference:12s} {done}",
                flush=True,
            )


class Hello(BaseHTTPRequestHandler):
    """Answers every request with the name of its backend."""

    def do_GET(self) -> None:
        body = f"hello from {self.connection.getsockname()[1]}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not a line per request."""


class Backend(ThreadingHTTPServer):
    """A small web server."""

    request_queue_size = 128
    daemon_threads = True


def run_backend(name: str, stop: threading.Event, options: argparse.Namespace) -> None:
    """Serve, and be a member meanwhile: it is in the view only while it answers."""
    with Backend(("127.0.0.1", 0), Hello) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with rota.blocking.join(
            "127.0.0.1:0",
            options.seed,
            name=name,
            metadata={"http": f"127.0.0.1:{server.server_address[1]}"},
            settings=PRESETS[options.preset](),
        ):
            stop.wait()
        stop.wait(1)
        server.shutdown()


def run_backends(options: argparse.Namespace) -> None:
    """Many backends in this process, each a member of its own, until Ctrl-C."""
    stop = threading.Event()
    names = [f"backend-{os.getpid()}-{number}" for number in range(options.count)]
    threads = [threading.Thread(target=run_backend, args=(name, stop, options)) for name in names]
    for thread in threads:
        thread.start()
    print(f"{len(threads)} backends in process {os.getpid()}; Ctrl-C lets them leave", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
    stop.set()
    for thread in threads:
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    proxy = commands.add_parser("proxy", help="run nginx and keep its upstreams")
    proxy.add_argument("--listen", default="127.0.0.1:7970", help="of the member")
    proxy.add_argument("--seed", action="append", default=[], help="another proxy or backend")
    proxy.add_argument("--http", default="127.0.0.1:8080", help="of nginx")
    proxy.add_argument("--directory", help="for nginx' files; default: a temporary one")
    proxy.set_defaults(run=run_proxy)
    backends = commands.add_parser("backends", help="run web servers that are members")
    backends.add_argument("count", type=int)
    backends.add_argument("--seed", action="append", default=None)
    backends.set_defaults(run=run_backends)
    for each in (proxy, backends):
        each.add_argument("--preset", choices=PRESETS, default="local")
    options = parser.parse_args()
    options.seed = options.seed if options.seed is not None else ["127.0.0.1:7970"]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C: with a graceful leave
    with contextlib.suppress(KeyboardInterrupt):
        options.run(options)


if __name__ == "__main__":
    main()
