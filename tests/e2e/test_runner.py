"""The runner itself: a skip that is not permitted fails the run, and the last line has all counts."""

import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
CI = os.path.join(HERE, "..", "..", ".ci", "run")
SUITE = """
    import unittest

    class Whole(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            raise unittest.SkipTest("no guests here")

        def test_one(self):
            pass

        def test_two(self):
            pass

    @unittest.skip("no root")
    class Decorated(unittest.TestCase):
        def test_three(self):
            pass

    class Long(unittest.TestCase):
        long_tests = {"test_hours"}

        def test_hours(self):
            pass

    class Mixed(unittest.TestCase):
        def test_good(self):
            pass

        def test_part(self):
            with self.subTest("a"):
                self.skipTest("no VLANs")
"""
ALL = "\n".join(
    [
        "# a comment",
        "",
        "sample: Whole: (one|two) | no guests here | why",
        "sample: Decorated: three | no .* | why",
        "sample: Mixed: part | no VLANs | why",
    ]
)


class Skips(unittest.TestCase):
    """Runs of a small suite with different permissions."""

    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="shunt-e2e-")
        self.addCleanup(place.cleanup)
        self.place = place.name
        with open(os.path.join(self.place, "test_sample.py"), "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(SUITE))

    def run_with(self, permitted, *args):
        """The exit code and the lines of a run with these permissions."""
        skips = os.path.join(self.place, "skips.txt")
        with open(skips, "w", encoding="utf-8") as file:
            file.write(permitted)
        argv = [sys.executable, os.path.join(HERE, "run"), "--suites", self.place, "--skips", skips, *args]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, (done.stdout + done.stderr).splitlines()

    def test_all_permitted(self):
        """Each is counted, those of a class whose fixture skips too."""
        code, lines = self.run_with(ALL)
        self.assertEqual((code, lines[-1]), (0, "1 passed, 0 failed, 4 skipped"))
        self.assertEqual(sum(line.startswith("SKIPPED: sample: ") for line in lines), 4)

    def test_long_ones(self):
        """They run with --all only; the time of each suite is told before the count."""
        code, lines = self.run_with(ALL, "--all")
        self.assertEqual((code, lines[-1]), (0, "2 passed, 0 failed, 4 skipped"))
        self.assertTrue(any(re.fullmatch(r"sample +[0-9.]+", line) for line in lines), lines)

    def test_others_fail(self):
        """Not permitted at all, for another reason, or for part of the title only."""
        for permitted, failed, skipped in [
            ("", 4, 0),
            (ALL.replace("no guests here", "no QEMU"), 2, 2),
            (ALL.replace("(one|two)", "one"), 1, 3),
            (ALL.replace("sample: Mixed: part", "Mixed"), 1, 3),
            (ALL.replace("no VLANs", "VLANs"), 1, 3),
        ]:
            code, lines = self.run_with(permitted)
            self.assertEqual((code, lines[-1]), (1, f"1 passed, {failed} failed, {skipped} skipped"), permitted)
            self.assertEqual(sum("which skips.txt does not permit" in line for line in lines), failed)

    def test_a_file_of_another_form(self):
        """A permission without a reason is none."""
        for wrong in ("sample: Whole: one", "sample: Whole: one | no guests here", "a |  | b"):
            code, lines = self.run_with(wrong)
            self.assertEqual(code, 1)
            self.assertIn("skips.txt:1", lines[-1])

    def test_ci_knows_the_last_line(self):
        """The expression of .ci/run takes the last line of a run, with or without skips, and no other."""
        with open(CI, encoding="utf-8") as file:
            (expression,) = re.findall(r"\$count =~ (\S.*) \]\]; then", file.read())
        for permitted, good in ((ALL, True), ("", False)):
            _, lines = self.run_with(permitted)
            script = f'count=$1; [[ $count =~ {expression} ]]'
            done = subprocess.run(["bash", "-c", script, "bash", lines[-1]], check=False)
            self.assertEqual(done.returncode == 0, good, lines[-1])

    def test_setup_fails_without_guests(self):
        """A failure of setup-guests is reported."""
        here = os.path.join(self.place, "tests", "e2e")
        venv = os.path.join(self.place, "target", "e2e-venv", "bin")
        path = os.path.join(self.place, "bin")
        with open(os.path.join(HERE, "setup"), encoding="utf-8") as file:
            setup = file.read()
        (packages,) = re.findall(r"^pypi=\((.+)\)$", setup, re.M)
        for code in (0, 1):
            for name, text in [
                (f"{here}/setup", setup),
                (f"{here}/setup-guests", f"#!/bin/sh\nexit {code}\n"),
                (f"{venv}/python", f"#!/bin/sh\necho {packages}\n"),
                (f"{path}/dpkg-query", "#!/bin/sh\necho installed\n"),
            ]:
                os.makedirs(os.path.dirname(name), exist_ok=True)
                with open(name, "w", encoding="utf-8") as file:
                    file.write(text)
                os.chmod(name, 0o755)
            env = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", "CARGO_TARGET_DIR": f"{self.place}/target"}
            done = subprocess.run([f"{here}/setup"], env=env, capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, code, done.stderr)

    def test_the_permissions_here_fit_tests(self):
        """Each title of skips.txt is that of a test, so that none outlives its test."""
        argv = [sys.executable, os.path.join(HERE, "run"), "--list", "--all"]
        titles = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
        with open(os.path.join(HERE, "skips.txt"), encoding="utf-8") as file:
            rules = [line.split(" | ")[0].strip() for line in file if line.strip() and not line.startswith("#")]
        self.assertGreater(len(rules), 0)
        for rule in rules:
            self.assertTrue(any(re.fullmatch(rule, title) for title in titles), rule)
