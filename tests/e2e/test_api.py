"""Access control of the API, its answers to invalid requests, and that no request is answered with a 5xx."""

import json
import os
import re
import subprocess
import unittest

from bench import cpus
from daemon import HERE
from managed import NOBODY, TOKEN, Managed, as_user

MAX_BODY_BYTES = 1 << 20
SEED = int(os.environ.get("SHUNT_E2E_SEED", "20260811"))
VENV = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "..", "..", "target")), "e2e-venv")
STANDIN = unittest.skipIf("SHUNT_E2E_STANDIN" in os.environ, "the stand-in has no API")
AS_ROOT = unittest.skipUnless(os.geteuid() == 0, "only root can become another user; run it as root")

# A process of another user, which cannot load Python's modules where they are root's: so it is forked, not started.
CONNECTED_AND_ANSWERED, CONNECTED, REFUSED = 0, 10, 11


def reach_as(user, path):
    """Result of another user's request to a socket: one of the three above, or another number for a bug."""
    import socket

    child = os.fork()
    if child == 0:
        result = 1
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(10)
                try:
                    client.connect(path)
                except PermissionError:
                    os._exit(REFUSED)
                try:
                    client.sendall(b"GET /v1/state HTTP/1.1\r\nHost: shunt\r\n\r\n")
                    answer = client.recv(100)
                except (BrokenPipeError, ConnectionResetError):
                    answer = b""
                result = CONNECTED_AND_ANSWERED if answer else CONNECTED
        finally:
            os._exit(result)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Served(unittest.TestCase):
    """A daemon whose API is served on its socket and over TCP."""

    user = None

    def setUp(self):
        self.daemon = Managed(cpu=cpus()[0], tcp=True)
        self.addCleanup(self.daemon.close)
        if self.user is not None:
            self.daemon.give_to(self.user)
        self.daemon.start()
        self.daemon.wait_ready()

    def assert_clear(self, reply, status, *words):
        """A refusal of that status which says what is wrong and what is allowed, with all these words."""
        self.assertEqual(reply.status, status, reply.body)
        self.assertEqual(reply.headers["content-type"], "application/json")
        self.assertEqual(set(reply.body), {"errors", "more"})
        for error in reply.body["errors"]:
            self.assertEqual(set(error), {"object", "field", "value", "message", "allowed", "remedy"})
        first = reply.body["errors"][0]
        if status != 404:
            self.assertTrue(first["remedy"], reply.body)
        text = " ".join(first.values())
        for word in words:
            self.assertIn(word, text)


@STANDIN
class People(Served):
    """Other users, and clients without the token."""

    @AS_ROOT
    def test_another_user_is_refused_by_the_socket(self):
        """Its mode keeps others out, and the command says so."""
        path = self.daemon.path("api.sock")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(reach_as(os.geteuid(), path), CONNECTED_AND_ANSWERED)
        self.assertEqual(reach_as(NOBODY, path), REFUSED)
        done = self.daemon.command("export", **as_user(NOBODY), cwd="/")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"\Ashunt: .*api\.sock[^\n]*\n\Z")
        self.assertIn("root", done.stderr)

    @AS_ROOT
    def test_another_user_is_refused_by_the_daemon(self):
        """A user who gets through because the mode was changed gets no answer: the daemon checks the peer's user."""
        path = self.daemon.path("api.sock")
        os.chmod(path, 0o666)
        self.assertEqual(reach_as(NOBODY, path), CONNECTED)
        self.assertEqual(reach_as(os.geteuid(), path), CONNECTED_AND_ANSWERED)

    @AS_ROOT
    def test_files_are_the_owners(self):
        """State and token are not for others' eyes."""
        for path in (self.daemon.state_dir, self.daemon.path("token")):
            self.assertEqual(os.stat(path).st_mode & 0o077, 0, path)

    def test_the_token_opens_and_nothing_else_does(self):
        """Over TCP: no token, wrong ones, and the right one in the wrong place; and what they try does not happen."""
        before = self.daemon.export()
        nic = json.dumps({"total_vfs": 1})
        for token in (None, "", "x", TOKEN[:-1], TOKEN + "0", TOKEN.upper(), TOKEN * 2, "x" * 8000):
            for method, path, body in [
                ("GET", "/v1/state", None),
                ("PUT", "/v1/nics/nic0", nic),
                ("GET", "/openapi.json", None),
                ("GET", "/nowhere", None),
            ]:
                reply = self.daemon.ask_tcp(path, method, token=token, body=body)
                self.assert_clear(reply, 401, "token", "Authorization: Bearer TOKEN")
                self.assertEqual(reply.headers["www-authenticate"], "Bearer")
        basic = self.daemon.ask_tcp("/v1/state", token=None, headers={"Authorization": f"Basic {TOKEN}"})
        self.assert_clear(basic, 401, "token")
        self.assertEqual(self.daemon.ask_tcp(f"/v1/state?token={TOKEN}", token=None).status, 401)
        self.assertEqual(self.daemon.export(), before)
        self.assertEqual(self.daemon.ask_tcp("/v1/state").body, before)
        self.assertNotIn(TOKEN, self.daemon.log())


@STANDIN
class Requests(Served):
    """Requests that are none get a clear 4xx, over the socket and over TCP."""

    def test_bodies(self):
        """Too large, not JSON, of another type, of the wrong form, with fields that do not exist."""
        json_type = {"Content-Type": "application/json"}
        before = self.daemon.export()
        for ask in (self.daemon.ask, self.daemon.ask_tcp):
            def put(body, headers=None, ask=ask):
                return ask("/v1/state", "PUT", body=body, headers=headers or json_type)

            least = b'{"version": 1, "nic": [{"name": "n", "total_vfs": 0}]}'
            largest = b" " * (MAX_BODY_BYTES - len(least)) + least
            planned = ask("/v1/state?dry_run=true", "PUT", body=largest, headers=json_type)
            self.assertEqual(planned.status, 200)
            for large in (b" " + largest, b" " * (2 << 20), b"[" * (3 << 20)):
                self.assert_clear(put(large), 413, f"{MAX_BODY_BYTES} bytes")
                chunked = (large[i : i + 65536] for i in range(0, len(large), 65536))
                self.assert_clear(put(chunked), 413, f"{MAX_BODY_BYTES} bytes")
            for broken in (b"", b"{", b"\xff\xfe", b'{"nic": [}', b"nic = 1", b"[" * 100_000, b"{} {}"):
                self.assert_clear(put(broken), 400, "not JSON")
            for kind in ("text/plain", "application/x-www-form-urlencoded", "application/toml", "x"):
                self.assert_clear(put(b"{}", {"Content-Type": kind}), 415, "application/json")
            for empty in (b"{}", b'{"version": 1}', b'{"version": 1, "nic": []}'):
                self.assert_clear(put(empty), 422)
            for wrong in (b"[]", b"null", b"7", b'{"nics": []}', b'{"nic": {}}', b'{"version": 2}'):
                self.assert_clear(put(wrong), 422)
            unknown = put(b'{"nic": [{"name": "nic0", "total_vfs": 1, "num_vf": 1}]}')
            self.assert_clear(unknown, 422, "num_vfs")
            self.assertEqual(unknown.body["errors"][0]["field"], "num_vf")
        self.assertEqual(self.daemon.export(), before)
        self.assertEqual(self.daemon.complaints(), [])

    def test_paths_and_parameters(self):
        """No such path, method, parameter, thing, or generation."""
        for ask in (self.daemon.ask, self.daemon.ask_tcp):
            self.assert_clear(ask("/v2/state"), 404, "openapi.json")
            self.assert_clear(ask("/v1/nics/" + "x" * 4000), 404)
            self.assert_clear(ask("/v1/nics/nic9"), 404, "nic9")
            self.assert_clear(ask("/v1/state", "DELETE"), 405)
            self.assert_clear(ask("/v1/state?dry_runn=true"), 400, "dry_runn")
            self.assert_clear(ask("/v1/apply?dry_run=yes", "POST", body=b"{}"), 400, "true or false")
            self.assert_clear(ask("/v1/events?since=-1"), 400, "whole number")
            self.assert_clear(ask("/v1/nics/%FF"), 400, "UTF-8")
            stale = ask("/v1/state", "PUT", body=b"{}", headers={"If-Match": '"77"'})
            self.assert_clear(stale, 412, "77")
            self.assert_clear(ask("/v1/state", "PUT", body=b"{}", headers={"If-Match": "new"}), 400, "ETag")


def seed_document(place):
    """A state with something of everything."""
    adapters = [
        {"name": f"a{i}", "switch": f"sw{i % 2}", "mac": f"02:00:00:00:01:0{i}", "iov_weight": 10 * i,
         "attachment": {"socket": os.path.join(place, f"own{i}")}}
        for i in range(3)
    ]  # fmt: skip
    return {
        "version": 1,
        "nic": [{"name": f"nic{i}", "total_vfs": 4, "num_vfs": 4} for i in range(3)],
        "switch": [{"name": f"sw{i}", "nic": f"nic{i}", "iov": True} for i in range(2)],
        "adapter": adapters,
    }


@STANDIN
@unittest.skipUnless(
    os.access(os.path.join(VENV, "bin", "schemathesis"), os.X_OK),
    f"schemathesis is not in {VENV}: tests/e2e/setup could not install it from PyPI, or was not run",
)
class Fuzzed(Served):
    """Requests made of the description that the daemon itself serves."""

    limit_s = 480
    long_tests = ("test_limits_of_the_description", "test_with_names_that_exist")
    # A request may name sockets and files anywhere. So this daemon runs as a user who may create them nowhere else.
    user = NOBODY if os.geteuid() == 0 else None

    def fuzz(self, *options, **env):
        """Runs schemathesis, and returns how many requests it made; fails with its report."""
        report = subprocess.run(
            [
                os.path.join(VENV, "bin", "schemathesis"),
                "--config-file", os.path.join(HERE, "schemathesis.toml"), "run",
                f"http://127.0.0.1:{self.daemon.port}/openapi.json",
                "--header", f"Authorization: Bearer {TOKEN}",
                "--seed", str(SEED),
                "--no-shrink", "--generation-database", "none", "--suppress-health-check", "all",
                "--warnings", "off", "--no-color", "--request-timeout", "30",
                "--exclude-path", "/v1/capture",  # its answer has no end; crates/api/src/tests/capture.rs
                *options,
            ],
            capture_output=True, text=True, timeout=440, check=False, cwd=self.daemon.run_dir,
            env=os.environ | {"PYTHONPATH": HERE} | env,
        )  # fmt: skip
        text = report.stdout + report.stderr
        self.assertEqual(report.returncode, 0, f"seed {SEED}\n{text[-6000:]}\n{self.daemon.log()[-3000:]}")
        return int(re.search(r"(\d+) generated", text)[1])

    def assert_well(self):
        """The daemon is there, has complained of nothing but devices that are made up, and starts again as it was."""
        daemon = self.daemon
        daemon.check_alive()
        before, actual = daemon.export(), daemon.ask("/v1/actual").body
        # An interface or namespace that does not exist may come yet, so a document may name it.
        self.assertEqual(daemon.complaints(expected=(" is not there yet: ", " cannot be opened: ")), [])
        daemon.kill()
        daemon.start()
        daemon.wait_ready()
        self.assertEqual(daemon.export(), before)
        after = daemon.ask("/v1/actual").body
        self.assertEqual((after["generation"], after["owners"]), (actual["generation"], actual["owners"]))

    def described(self, least, *options):
        """No 5xx; and statuses, bodies and headers of all answers are those that the description has."""
        # Not every document of the right form can be in force: names must exist, MACs be unique and so on.
        requests = self.fuzz(*options, "--checks", "all", "--exclude-checks", "positive_data_acceptance")
        print(f"    {requests} requests, generation {self.daemon.ask('/v1/actual').body['generation']}")
        self.assertGreater(requests, least)
        self.assert_well()

    def test_as_described(self):
        """With random requests."""
        self.described(300, "--phases", "fuzzing", "--max-examples", "12")

    def test_limits_of_the_description(self):
        """With a request for each limit of each field, and beyond."""
        self.described(10_000, "--phases", "coverage")

    def test_with_names_that_exist(self):
        """The same with requests that can succeed, and do: a state of some size changes all the time."""
        place = self.daemon.path("fuzzed")
        os.mkdir(place)
        if self.user:
            os.chown(place, self.user, self.user)
        seed = seed_document(place)
        with open(os.path.join(place, "seed.json"), "w", encoding="utf-8") as file:
            json.dump(seed, file)
        self.daemon.apply(seed)
        requests = self.fuzz(
            "--phases", "coverage,fuzzing", "--max-examples", "5",
            "--checks", "not_a_server_error,status_code_conformance,response_schema_conformance",
            SCHEMATHESIS_HOOKS="fuzzed", SHUNT_E2E_DIR=place,
        )  # fmt: skip
        generation = self.daemon.ask("/v1/actual").body["generation"]
        print(f"    {requests} requests, generation {generation}")
        self.assertGreater(generation, 50, "almost nothing succeeded")
        self.assert_well()
