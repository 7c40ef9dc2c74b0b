"""`shunt apply` and `shunt export`: a plan changes nothing, a second apply has nothing to do, and both ends meet."""

import json
import os
import subprocess
import time
import tomllib
import unittest

from bench import cpus
from labguest import LabGuests
from managed import Managed

EXAMPLE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "shunt.example.toml")


def document(run_dir):
    """A NIC, a switch and two adapters, as short as they may be written."""
    def adapter(name, number, **settings):
        attachment = {"socket": os.path.join(run_dir, f"{name}.sock")}
        mac = f"02:00:00:00:00:{number:02x}"
        return {"name": name, "switch": "sw0", "mac": mac, "attachment": attachment, **settings}

    return {
        "version": 1,
        "nic": [{"name": "nic0", "total_vfs": 2, "num_vfs": 2}],
        "switch": [{"name": "sw0", "nic": "nic0", "iov": True}],
        "adapter": [adapter("web", 1, iov_weight=9), adapter("db", 2, vlan={"id": 7}, vmq_weight=0)],
    }


def example(run_dir):
    """The objects of docs/shunt.example.toml, with sockets in the run directory instead of interfaces and other files."""
    with open(EXAMPLE, "rb") as file:
        document = tomllib.load(file)
    objects = {kind: document[kind] for kind in ("nic", "switch", "adapter", "vpf")}

    def moved(value, name):
        if isinstance(value, dict):
            if "interface" in value or value.get("kind") == "tap":
                return {"socket": os.path.join(run_dir, f"{name}.sock")}
            return {key: moved(one, f"{name}-{key}") for key, one in value.items()}
        if isinstance(value, list):
            return [moved(one, f"{name}{number}") for number, one in enumerate(value)]
        if isinstance(value, str) and value.startswith(("tap:", "xdp:")):
            return f"vhost-user:{run_dir}/{name}.sock"
        if isinstance(value, str) and value.startswith("/"):
            return os.path.join(run_dir, os.path.basename(value))
        return value

    return {"version": 1, **moved(objects, "moved")}


def kept(state_dir):
    """The files in a state directory and what they hold."""
    files = {}
    for name in os.listdir(state_dir):
        with open(os.path.join(state_dir, name), "rb") as file:
            files[name] = file.read()
    return files


@unittest.skipIf("SHUNT_E2E_STANDIN" in os.environ, "the stand-in has no commands")
class Commands(unittest.TestCase):
    """Commands against a daemon that starts with nothing."""

    def setUp(self):
        self.daemon = Managed(cpu=cpus()[0])
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        self.daemon.wait_ready()
        self.file = self.daemon.path("wanted.json")
        with open(self.file, "w", encoding="utf-8") as file:
            json.dump(document(self.daemon.run_dir), file)

    def everything(self):
        """All that an apply could change: the state, what is in force, its generation, and the files."""
        daemon = self.daemon
        actual = daemon.ask("/v1/actual")
        sockets = sorted(name for name in os.listdir(daemon.run_dir) if name.endswith(".sock"))
        return daemon.export(), actual.body, actual.headers["etag"], sockets, kept(daemon.state_dir)

    def test_dry_run_changes_nothing(self):
        """The plan is shown, and is what is then done; with `--dry-run` nothing else happens."""
        steps = "create nic nic0\ncreate switch sw0\ncreate adapter db\ncreate adapter web\n"
        nothing = self.everything()
        self.assertEqual(self.daemon.says("apply", "-f", self.file, "--dry-run"), steps)
        told = json.loads(self.daemon.says("apply", "-f", self.file, "--dry-run", "--json"))
        self.assertEqual((told["dry_run"], len(told["plan"]["steps"])), (True, 4))
        self.assertEqual(self.everything(), nothing)

        done = self.daemon.says("apply", "-f", self.file)
        self.assertTrue(done.startswith(steps) and "applied, generation" in done, done)
        applied = self.everything()
        self.assertEqual(applied[3], ["api.sock", "db.sock", "web.sock"])
        paths = {one["name"]: one["path"] for one in applied[1]["actual"]["adapters"]}
        self.assertEqual(paths, {"web": "vf", "db": "synthetic"})

        changed = document(self.daemon.run_dir)
        changed["adapter"] = [changed["adapter"][0] | {"iov_weight": 0}]
        for more, db in ((["--prune"], "remove adapter db"), ([], "kept without --prune: adapter db (1)")):
            told = self.daemon.says("apply", "-f", "-", "--dry-run", *more, given=json.dumps(changed))
            self.assertIn(db, told)
        self.assertIn("iov_weight", told)
        self.assertEqual(self.everything(), applied)

    def test_second_apply_has_nothing_to_do(self):
        """The same document again changes nothing, not even the generation, in whichever form it is written."""
        self.daemon.says("apply", "-f", self.file)
        applied = self.everything()
        toml = self.daemon.path("exported.toml")
        with open(toml, "w", encoding="utf-8") as file:
            file.write(self.daemon.says("export"))
        for file in (self.file, toml):
            for more in ([], ["--dry-run"]):
                self.assertEqual(self.daemon.says("apply", "-f", file, *more), "nothing to do\n")
        self.assertEqual(self.everything(), applied)

    def test_export_can_be_applied(self):
        """`shunt export | shunt apply -f -`, in both forms: to the same daemon, and to an empty one."""
        self.daemon.says("apply", "-f", self.file)
        exported = self.daemon.export()
        for form in ([], ["--json"]):
            text = self.daemon.says("export", *form)
            self.assertEqual(self.daemon.says("apply", "-f", "-", given=text), "nothing to do\n")
            self.daemon.clear()
            self.assertEqual(self.daemon.export()["adapter"], [])
            self.daemon.says("apply", "-f", "-", given=text)
            self.assertEqual(self.daemon.export(), exported)

    def test_every_object_goes_round(self):
        """The objects of the example file through show, export, apply and up, as TOML and JSON: nothing changes."""
        daemon = self.daemon
        wanted = example(daemon.run_dir)
        daemon.says("apply", "-f", "-", given=json.dumps(wanted))
        before = daemon.export()
        for kind in ("nic", "switch", "adapter", "vpf"):
            self.assertGreater(len(before[kind]), 0, kind)
            names = [one["name"] for one in before[kind]]
            for name in names if kind != "vpf" else []:
                for form in ([], ["--json"]):
                    shown = daemon.says(kind, "show", name, *form)
                    told = daemon.says("apply", "-f", "-", given=shown)
                    self.assertEqual(told.splitlines()[0], "nothing to do", shown)
        for form in ([], ["--json"]):
            text = daemon.says("export", *form)
            self.assertEqual(daemon.says("apply", "-f", "-", given=text), "nothing to do\n")
        daemon.restart_with(daemon.says("export"))
        self.assertEqual(daemon.export(), before)

    def test_what_removes_guests_is_agreed_to(self):
        """An adapter with a running guest goes after `y` at a terminal or with `--yes`, and not by empty input."""
        daemon = self.daemon
        wanted = document(daemon.run_dir)
        daemon.says("apply", "-f", self.file)
        sockets = [daemon.path(f"{name}.sock") for name in ("web", "db")]
        guests = LabGuests(sockets, [adapter["mac"] for adapter in wanted["adapter"]])
        self.addCleanup(guests.kill)
        guests.go()
        applied = self.everything()
        for nothing in ("", "\n", "{}", "version = 1\n", '{"version": 1, "adapter": []}'):
            done = daemon.command("apply", "-f", "-", "--prune", "--yes", given=nothing)
            self.assertEqual(done.returncode, 2, done)
        wanted["adapter"] = wanted["adapter"][:1]
        with open(self.file, "w", encoding="utf-8") as file:
            json.dump(wanted, file)
        done = daemon.command("apply", "-f", self.file, "--prune")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("running guests: db; repeat with --yes", done.stderr)
        for answer in ("n\n", "\n"):
            self.assertEqual(self.at_terminal(answer), 1)
        self.assertEqual(self.everything()[0], applied[0])
        self.assertEqual(self.at_terminal("y\n"), 0)
        self.assertEqual([one["name"] for one in daemon.export()["adapter"]], ["web"])
        wanted["adapter"] = []
        daemon.says("apply", "-f", "-", "--prune", "--yes", given=json.dumps(wanted))
        self.assertEqual(daemon.export()["adapter"], [])

    def at_terminal(self, answer):
        """The exit code of `shunt apply --prune` at a terminal where this is typed when it has asked."""
        ours, theirs = os.openpty()
        argv = [self.daemon.program, "apply", "-f", self.file, "--prune", "--run-dir", self.daemon.run_dir]
        with subprocess.Popen(argv, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, text=True) as apply:
            os.close(theirs)
            asked = ""
            while "[y/N]" not in asked:
                asked += os.read(ours, 4096).decode()
            self.assertIn("Remove db,", asked)
            os.write(ours, answer.encode())
            apply.communicate(timeout=20)
        os.close(ours)
        return apply.returncode

    def test_a_refused_document_changes_nothing(self):
        """One wrong adapter, and none of the document is done: not by form, not by meaning, not by the data plane."""
        self.daemon.says("apply", "-f", self.file)
        applied = self.everything()
        for field, settings in {
            "mac": {"mac": "02:00:00:00:00:01"},  # web's
            "iov_weight": {"iov_weight": 101},
            "attachment.socket": {"attachment": {"socket": self.daemon.path("nowhere/db.sock")}},
        }.items():
            wrong = document(self.daemon.run_dir)
            web, db = wrong["adapter"]
            web["tx_weight"] = 50
            del db["vlan"]
            db.update(settings)
            done = self.daemon.command("apply", "-f", "-", given=json.dumps(wrong))
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn(f", {field}", done.stderr)
            self.assertEqual(self.everything(), applied)

    def test_sockets_change_hands(self):
        """Adapters exchange their sockets and are renamed, with guests on them; guests that come then have frames."""
        guests = None
        for names, sockets in [
            (("web", "db"), ("one", "two")),
            (("web", "db"), ("two", "one")),  # exchanged
            (("new", "db"), ("two", "one")),  # renamed
            (("db", "new"), ("two", "one")),  # and that, too
            (("db", "new"), ("three", "two")),
        ]:
            wanted = document(self.daemon.run_dir)
            paths = [self.daemon.path(f"{socket}.sock") for socket in sockets]
            for adapter, name, path in zip(wanted["adapter"], names, paths):
                adapter.update(name=name, attachment={"socket": path})
                adapter.pop("vlan", None)
            self.daemon.apply(wanted)
            if guests:
                guests.kill()  # those whose adapters have kept their sockets are still there
            guests = LabGuests(paths, [adapter["mac"] for adapter in wanted["adapter"]])
            self.addCleanup(guests.kill)
            guests.go()
            connected = [one["connected"] for one in self.daemon.ask("/v1/actual").body["actual"]["adapters"]]
            self.assertEqual(connected, [True, True])
            self.wait_for_frames(names)
        self.assertEqual(self.daemon.complaints(), [])
        for way in guests.stop():
            self.assertEqual((way["lost"], way["corrupted"]), (0, 0), way)

    def wait_for_frames(self, names):
        """Waits until adapters of these names have received some."""
        deadline = time.monotonic() + 5
        while True:
            frames = {port["name"]: port["rx_frames"] for port in self.daemon.ask("/v1/stats").body["ports"]}
            if all(frames.get(f"nic0/{name}") for name in names):
                return
            self.assertLess(time.monotonic(), deadline, f"{names}: {frames}")
            time.sleep(0.005)
