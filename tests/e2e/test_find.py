"""Commands without --run-dir find the daemon that runs: real daemons, in a mount namespace with an empty /run.

So no daemon of the host is found, and none of the test is found by the host's commands.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from daemon import binary

USER = 65533  # of no process of the host


class Site:
    """A mount namespace with an empty /run, /tmp and /var/lib, and a directory for run directories."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="shunt-e2e-", dir="/dev/shm")
        os.chmod(self.dir, 0o755)
        self.program = shutil.copy(binary(), os.path.join(self.dir, "shunt"))
        os.chmod(self.program, 0o755)
        mounts = [f"mount -t tmpfs -o mode={mode} tmpfs {path}" for path, mode in (("/run", 755), ("/tmp", 1777), ("/var/lib", 755))]
        command = " && ".join([*mounts, "echo", "exec sleep infinity"])
        self._holder = subprocess.Popen(["unshare", "-m", "sh", "-ec", command], stdout=subprocess.PIPE)
        self._holder.stdout.readline()
        self._log = os.path.join(self.dir, "log")
        self.daemons = []

    def argv(self, user, *args, session=None):
        """A command line of shunt in the namespace, as this user and with the runtime directory of a session, if any."""
        become = [] if user == 0 else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        runtime = [f"XDG_RUNTIME_DIR={session}"] if session else []
        clean = ["env", "-u", "XDG_RUNTIME_DIR", "-u", "XDG_STATE_HOME", "-u", "SHUNT_RUN_DIR", f"HOME={self.dir}", *runtime]
        return ["nsenter", "-t", str(self._holder.pid), "-m", *become, *clean, self.program, *args]

    def session(self, user):
        """Runtime directory of a session of this user."""
        path = f"/run/user/{user}"
        os.makedirs(self.outside(path))
        os.chown(self.outside(path), user, user)
        return path

    def outside(self, path):
        """A path of the namespace, as seen from outside."""
        return f"/proc/{self._holder.pid}/root{path}"

    def log(self):
        """Logs of all daemons."""
        with open(self._log, encoding="utf-8") as file:
            return file.read()

    def start(self, name=None, user=0, session=None):
        """Starts a daemon with this run directory, by default the default one; returns process and run directory."""
        run_dir = name and os.path.join(self.dir, name)
        top = ""
        if run_dir:
            os.makedirs(run_dir, exist_ok=True)
            os.chown(run_dir, user, user)
            top = f"run_dir = {json.dumps(run_dir)}\n"
        config = os.path.join(self.dir, f"{name or 'default'}-{user}.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f'{top}[[nic]]\nname = "nic-{name or "default"}"\nkind = "soft"\ntotal_vfs = 1\n')
        command = self.argv(user, "up", "--config", config, session=session)
        with open(self._log, "ab") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.daemons.append(process)
        if process.stdout.readline() != "ready\n":
            raise AssertionError("the daemon did not start")
        return process, run_dir

    def ask(self, *args, user=0, session=None):
        """Runs a command without --run-dir."""
        return subprocess.run(self.argv(user, *args, session=session), capture_output=True, text=True, timeout=30, check=False)

    def close(self):
        """Ends all daemons and the namespace."""
        for process in self.daemons:
            if process.poll() is None:
                process.terminate()
            process.wait(timeout=10)
            process.stdout.close()
        self._holder.kill()
        self._holder.wait()
        self._holder.stdout.close()
        shutil.rmtree(self.dir)


class Find(unittest.TestCase):
    """A command is for the only daemon."""

    def setUp(self):
        self.site = Site()
        self.addCleanup(self.site.close)

    def finds(self, nic, user=0):
        """Asserts that commands find the daemon with this NIC."""
        done = self.site.ask("nic", "list", user=user)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(nic, done.stdout)

    def test_the_only_daemon_is_found_wherever_its_run_directory_is(self):
        none = self.site.ask("adapter", "list")
        self.assertEqual(none.returncode, 1)
        self.assertIn("start one with `shunt up --config FILE`", none.stderr)
        for name in (None, "other"):
            process, _ = self.site.start(name)
            self.finds(f"nic-{name or 'default'}")
            stats = self.site.ask("stats")
            self.assertEqual((stats.returncode, stats.stderr), (0, ""))
            process.terminate()
            process.wait(timeout=10)
            self.assertEqual(self.site.ask("adapter", "list").returncode, 1)

    def test_several_daemons_are_listed_with_process_and_state_file(self):
        daemons = [self.site.start(name) for name in (None, "one", "two")]
        told = self.site.ask("nic", "list")
        self.assertEqual(told.returncode, 2)
        self.assertIn("3 daemons run; choose one with --run-dir, or for all commands with SHUNT_RUN_DIR", told.stderr)
        listed = {}
        for run_dir, pid, state in re.findall(r"^  (\S+)  process (\d+)  (\S+)$", told.stderr, re.MULTILINE):
            listed[run_dir] = (int(pid), state)
        self.assertEqual(len(listed), 3, told.stderr)
        for process, run_dir in daemons:
            pid, state = listed[run_dir or "/run/shunt"]
            self.assertEqual(pid, process.pid)
            self.assertEqual(state, f"{run_dir}/state/state.json" if run_dir else "/var/lib/shunt/state.json")
        error = json.loads(self.site.ask("nic", "list", "--json").stderr)["errors"][0]
        self.assertEqual((error["field"], set(error["allowed"].split(", "))), ("--run-dir", set(listed)))
        daemons[0][0].kill()
        daemons[0][0].wait(timeout=10)
        stats = self.site.ask("stats")  # and not the last counters of the default run directory
        self.assertEqual((stats.returncode, stats.stdout), (2, ""))
        self.assertIn("2 daemons run", stats.stderr)
        daemons[1][0].terminate()
        daemons[1][0].wait(timeout=10)
        self.finds("nic-two")

    def test_a_killed_daemon_is_not_found_and_an_upgraded_one_is(self):
        process, _ = self.site.start("killed")
        process.kill()
        process.wait(timeout=10)
        self.site.start("alive")
        self.finds("nic-alive")
        done = self.site.ask("upgrade", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        pid = json.loads(done.stdout)["pid"]
        self.addCleanup(self.end, pid)
        self.finds("nic-alive")
        self.site.start("second")
        self.assertIn(f"process {pid}  ", self.site.ask("nic", "list").stderr)

    def test_another_user_can_tell_whether_a_daemon_runs(self):
        """Also in a PID namespace, where the kernel hides locks of processes outside."""
        process, run_dir = self.site.start("of-root")
        argv = self.site.argv(USER, "stats", "--run-dir", run_dir)
        apart = [*argv[:4], "unshare", "--pid", "--fork", "--mount-proc", *argv[4:]]
        for command in (argv, apart):
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), command)
        process.kill()
        process.wait(timeout=10)
        for command in (argv, apart):
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            self.assertEqual(done.returncode, 1, command)
            self.assertIn("the counters of the last one", done.stderr)

    def end(self, pid):
        """Ends a process that took over."""
        os.kill(pid, 15)
        deadline = time.monotonic() + 10
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
            time.sleep(0.01)

    def test_each_user_finds_only_daemons_that_take_its_commands(self):
        self.site.start("of-root")
        self.assertEqual(self.site.ask("adapter", "list", user=USER).returncode, 1)
        self.site.start("of-user", user=USER)
        self.finds("nic-of-root")
        self.finds("nic-of-user", user=USER)


class Defaults(unittest.TestCase):
    """Directories of a daemon without run_dir and state_dir."""

    def setUp(self):
        self.site = Site()
        self.addCleanup(self.site.close)

    def change(self, num_vfs, *more, user=0):
        """Changes the NIC; returns what the command tells on standard error."""
        done = self.site.ask("nic", "set", "nic-default", "--num-vfs", str(num_vfs), *more, user=user)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def test_sessions_of_root_have_the_directories_of_the_service(self):
        session = self.site.session(0)
        self.site.start(session=session)
        self.assertEqual(self.change(1), "", "outside of the session")
        self.assertTrue(os.path.exists(self.site.outside("/run/shunt/api.sock")))
        self.assertTrue(os.path.exists(self.site.outside("/var/lib/shunt/state.json")))
        self.assertEqual(os.listdir(self.site.outside(session)), [])

    def test_a_session_of_another_user_has_its_own(self):
        os.chown(self.site.dir, USER, USER)  # its home
        session = self.site.session(USER)
        self.site.start(user=USER, session=session)
        self.assertEqual(self.change(1, user=USER), "", "outside of the session")
        self.assertTrue(os.path.exists(self.site.outside(f"{session}/shunt/api.sock")))
        self.assertTrue(os.path.exists(os.path.join(self.site.dir, ".local/state/shunt/state.json")))

    def test_a_state_directory_that_cannot_be_written_is_told_in_the_log_and_after_each_change(self):
        with open(self.site.outside("/var/lib/shunt"), "w", encoding="utf-8"):
            pass  # a file in its place
        process, _ = self.site.start()
        warning = (
            "changes survive a restart of the daemon, but no reboot: cannot create the state directory /var/lib/shunt: "
            "File exists"
        )  # fmt: skip
        self.assertIn(warning, self.site.log())
        told = self.change(1)
        self.assertTrue(told.startswith(f"warning: {warning}"), told)
        self.assertIn("set state_dir", told)
        self.assertEqual(self.site.ask("export").stderr, "", "a query has no warning")
        self.assertEqual(self.change(0, "--dry-run"), "")
        process.terminate()
        process.wait(timeout=10)
        self.site.start()
        self.assertEqual(json.loads(self.site.ask("nic", "list", "--json").stdout)[0]["num_vfs"], 1)
        self.assertTrue(os.path.exists(self.site.outside("/run/shunt/state/state.json")))


if __name__ == "__main__":
    unittest.main()
