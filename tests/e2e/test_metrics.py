"""Metrics in Prometheus: the format, alert rules, Grafana's dashboard, and a server that scrapes while traffic runs."""

import json
import os
import re
import subprocess
import time
import unittest
import urllib.parse
import urllib.request

from bench import cpus
from daemon import HERE
from labguest import LabGuests
from managed import TOKEN, Managed, free_port, large
from pages import page

DEPLOY = os.path.join(HERE, "..", "..", "deploy")
RULES = os.path.join(DEPLOY, "prometheus", "shunt-rules.yml")
SCRAPED_S = 60
MACS = ["02:00:00:00:01:01", "02:00:00:00:01:02"]
# Text of OpenMetrics: of a value with labels.
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


def promtool(*words, **options):
    """What `promtool` says; its exit code must be 0."""
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=60, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"promtool {' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


class Metrics(unittest.TestCase):
    """A NIC with 255 VFs, 64 adapters on its switch, and two guests that send."""

    limit_s = 180
    long_tests = ("test_prometheus_scrapes_for_a_minute",)

    @classmethod
    def setUpClass(cls):
        cls.daemon = Managed(cpu=cpus()[0], tcp=True)
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.start()
        cls.daemon.wait_ready()
        document = large(cls.daemon.path)
        for one, mac in zip(document["adapter"], MACS):
            one["mac"], one["owner"] = mac, {"namespace": "default", "pod": f"web-{mac[-1]}"}
        cls.daemon.apply(document)
        cls.guests = LabGuests([cls.daemon.path(f"guest-{i:02}.sock") for i in (0, 1)], MACS)
        cls.addClassCleanup(cls.guests.kill)
        cls.guests.go()

    def scrape(self, accept="*/*"):
        """The text, and the seconds that it took."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Accept": accept}
        request = urllib.request.Request(f"http://127.0.0.1:{self.daemon.port}/metrics", headers=headers)
        begun = time.monotonic()
        with urllib.request.urlopen(request, timeout=20) as reply:
            text = reply.read().decode()
        return text, time.monotonic() - begun

    def names(self):
        """Names of all samples that the endpoint has, or would have: those of the page."""
        found = {match[1] for line in self.scrape()[0].splitlines() if (match := SAMPLE.match(line))}
        listed = re.findall(r"`((?:shunt|sriov)_\w+)`", page("api.md"))
        return found | {name + end for name in listed for end in ("", "_total")} | {"up"}

    def test_a_scrape(self):
        """promtool finds nothing wrong but a label of the exporter's. The time of a scrape is printed."""
        text, _ = self.scrape()
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False)
        wrong = [line for line in (done.stdout + done.stderr).splitlines() if not re.fullmatch(r"sriov_vf_\w+ label names .* 'camelCase'", line)]
        self.assertEqual(wrong, [])
        self.assertIn(done.returncode, (0, 3))
        self.assertTrue(self.scrape("application/openmetrics-text;version=1.0.0")[0].endswith("# EOF\n"))
        times = sorted(self.scrape()[1] for _ in range(50))
        print(f"     255 VFs, {len(text.splitlines())} lines: median {times[25] * 1e3:.1f} ms, longest {times[-1] * 1e3:.1f} ms")

    def test_rules_and_dashboard_are_of_metrics_that_there_are(self):
        """Alert rules fire when they should; all expressions name metrics, and drop reasons, of Shunt."""
        promtool("check", "rules", RULES)
        promtool("test", "rules", RULES.replace(".yml", "-test.yml"))
        with open(RULES, encoding="utf-8") as file:
            rules = file.read()
        with open(os.path.join(DEPLOY, "grafana", "shunt.json"), encoding="utf-8") as file:
            panels = json.load(file)["panels"]
        expressions = [target["expr"] for panel in panels for target in panel["targets"]] + [rules]
        used = {name for text in expressions for name in re.findall(r"\b(?:shunt|sriov)_\w+", text)}
        self.assertGreater(len(used), 12)
        self.assertEqual(used - self.names(), set())
        reasons = {one for text in expressions for one in re.findall(r"rx_no_buffer|rx_too_small", text)}
        reasons |= {f"{prefix}_{one}" for prefix in ("tx", "tx_switch") for one in ("spoofed_mac", "vlan_forbidden", "source_multicast")}
        drops = page("drops.md")
        for reason in reasons:
            self.assertIn(f"`{reason}`", drops)
            subprocess.run([self.daemon.program, "explain", reason], capture_output=True, timeout=30, check=True)

    def test_prometheus_scrapes_for_a_minute(self):
        """Each scrape succeeds, and the answers of its queries are the counters of the API."""
        port, directory = free_port(), self.daemon.path("prometheus")
        os.mkdir(directory)
        config = os.path.join(directory, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            # JSON is YAML.
            job = {
                "job_name": "shunt", "scrape_interval": "1s", "authorization": {"credentials": TOKEN},
                "static_configs": [{"targets": [f"127.0.0.1:{self.daemon.port}"]}],
            }  # fmt: skip
            json.dump({"rule_files": [os.path.abspath(RULES)], "scrape_configs": [job]}, file)
        promtool("check", "config", config)
        argv = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory}/data", f"--web.listen-address=127.0.0.1:{port}"]
        with open(os.path.join(directory, "log"), "w", encoding="utf-8") as log:
            server = subprocess.Popen(argv, stdout=log, stderr=log)
        self.addCleanup(server.wait, 20)
        self.addCleanup(server.terminate)

        def ask(query, **more):
            words = urllib.parse.urlencode({"query": query, **more})
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{words}", timeout=10) as reply:
                return json.load(reply)["data"]["result"]

        deadline = time.monotonic() + 30
        while True:
            try:
                if ask('up{job="shunt"}'):
                    break
            except OSError:
                pass  # it is starting
            self.assertLess(time.monotonic(), deadline, "no scrape")
            time.sleep(0.5)
        time.sleep(SCRAPED_S)
        ups = float(ask(f'count_over_time(up{{job="shunt"}}[{SCRAPED_S}s])')[0]["value"][1])
        self.assertEqual(ask(f'min_over_time(up{{job="shunt"}}[{SCRAPED_S}s])')[0]["value"][1], "1")
        self.assertGreater(ups, SCRAPED_S / 2)
        longest = float(ask(f"max_over_time(scrape_duration_seconds[{SCRAPED_S}s])")[0]["value"][1])
        rate = float(ask("sum(rate(shunt_port_rx_frames_total[30s]))")[0]["value"][1])
        print(f"     {ups:.0f} scrapes in {SCRAPED_S} s, the longest {longest * 1e3:.1f} ms; {rate / 1e3:.0f} kpps by its rate()")
        self.assertGreater(rate, 0)
        (query,) = re.findall(r"```promql\n(.*)\n```", page("api.md"))
        pods = {one["metric"]["pod"]: float(one["value"][1]) for one in ask(query)}
        self.assertEqual(sorted(pods), sorted(f"web-{mac[-1]}" for mac in MACS))
        self.assertGreater(min(pods.values()), 0)

        # With the guests at rest its counters are the API's, each of them.
        self.guests.stop()
        time.sleep(3)  # three scrapes
        ports = self.daemon.ask("/v1/stats").body["ports"]
        self.assertTrue(any(one["tx_frames"] for one in ports))
        for name in ("tx_frames", "rx_bytes"):
            answers = {one["metric"]["port"]: int(one["value"][1]) for one in ask(f"shunt_port_{name}_total")}
            self.assertEqual(answers, {one["name"]: one[name] for one in ports})
        drops = {(one["metric"]["port"], one["metric"]["reason"]): int(one["value"][1]) for one in ask("shunt_port_drops_total")}
        self.assertEqual(drops, {(one["name"], reason): count for one in ports for reason, count in one["drops"].items()})


if __name__ == "__main__":
    unittest.main()
