"""The planner's page, the lab's page, and an hour of playback, in a real browser."""

import csv
import json
import os
import re
import subprocess
import tempfile
import unittest
from decimal import ROUND_HALF_UP, Decimal

from browser import complaints, needs_browser, wait_until
from daemon import HERE
from managed import TOKEN
from test_dashboard import SCREENSHOTS, STANDIN, WIDTHS, Shown, document, value

ROOT = os.path.join(HERE, "..", "..")
RUN = os.path.join(ROOT, "crates", "plan", "measured", "shunt-lab.json")
ROWS = "id => [...document.querySelectorAll(`#${id} tbody tr`)].map(row => [...row.cells].map(cell => cell.textContent))"
READINGS = 3600
SMALL = {"width": 500, "height": 300}
START_MS, START_US = 1_790_000_000_000, 5_000_000_000
MEMORY_MAX = 128 << 20  # of a page that has shown an hour
GROWTH_MAX = 16 << 20  # of its second half


def digits(number):
    """Three digits, as the pages write them: of two equally near, the larger."""
    places = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    return str(Decimal(number).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))


class Pages(Shown):
    """Checks that hold for any page."""

    def open_page(self, path, ready, width="wide", **options):
        """A page at a path; at the end it must have complained of nothing."""
        page = self.browser.page(viewport=WIDTHS[width], **options)
        self.addCleanup(page.context.close)
        page.goto(f"{self.origin}{path}#token={TOKEN}")
        wait_until(page, ready)
        self.addCleanup(self.assert_quiet, page)
        return page

    def rows(self, page, table):
        """Texts of a table's cells."""
        return page.evaluate(ROWS, table)

    def check_screens(self, name, opened, used):
        """In both themes and widths: axe finds nothing, the page is no wider than the screen, and nothing moves."""
        for width in WIDTHS:
            page = opened(width=width, color_scheme="light")
            page.evaluate("""() => {
                window.moved = 0;
                new PerformanceObserver((list) => {
                    for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.moved += entry.value;
                }).observe({type: "layout-shift", buffered: true});
            }""")
            used(page)
            for theme in ("light", "dark"):
                with self.subTest(width=width, theme=theme):
                    page.emulate_media(color_scheme=theme)
                    self.assertEqual(complaints(page), [])
                    needed, available = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
                    self.assertLessEqual(needed, available)
                    self.assertLess(page.evaluate("window.moved"), 0.02)
                    for part, whole in (("first", False), ("page", True)):
                        page.screenshot(path=os.path.join(SCREENSHOTS, f"{name}-{width}-{theme}-{part}.png"), full_page=whole)
            page.context.close()

    def check_keyboard(self, page):
        """The tabulator reaches all that can be used, and the focus is seen."""
        wanted = set(page.evaluate("""[...document.querySelectorAll("[tabindex='0'], nav a, main select, main button, main input")]
            .filter(node => node.offsetParent !== null && !node.disabled).map((node, i) => node.dataset.at = "n" + i)"""))
        reached = set()
        for _ in range(len(wanted) + 20):
            page.keyboard.press("Tab")
            at, is_seen, what = page.evaluate("""() => {
                const it = document.activeElement, style = getComputedStyle(it);
                return [it.dataset.at ?? "", style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2, it.outerHTML.slice(0, 80)];
            }""")
            self.assertTrue(is_seen or what.startswith("<body"), f"no visible focus: {what}")
            reached.add(at)
        self.assertEqual(wanted - reached, set())
        self.assertTrue(page.evaluate("[...document.querySelectorAll('main table')].every(it => it.closest('.scroll').tabIndex === 0)"))


@STANDIN
@needs_browser
class Planner(Pages):
    """Figures of the command, and sliders."""

    ready = "() => document.getElementById('figures').dataset.query !== undefined"

    def open_planner(self, query="", **options):
        """The page with the answer to a query."""
        return self.open_page(f"/plan.html{query}", self.ready, **options)

    def set(self, page, **values):
        """Sets sliders, and waits for the answer; returns it as the API gives it."""
        for name, number in values.items():
            page.fill(f"#{name}", str(number))
        wait_until(
            page,
            """values => {
                const query = new URLSearchParams(document.getElementById("figures").dataset.query);
                return Object.entries(values).every(([name, number]) => query.get(name) === String(number));
            }""",
            values,
        )
        return self.daemon.ask("/v1/plan" + page.evaluate("document.getElementById('figures').dataset.query")).body

    def command(self, page, path=None):
        """What `shunt plan` says of the file on the page, all adapters on a path if one is given."""
        workload = page.text_content("#workload")
        if path:
            workload = re.sub(r"^(cores = .*)$", rf'\1\npath = "{path}"', workload, flags=re.MULTILINE)
        with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as file:
            file.write(workload)
            file.flush()
            line = page.text_content("#command").replace("chain.toml", file.name).split()
            return json.loads(subprocess.check_output([self.daemon.program, *line[1:], "--json"]))

    def test_figures_are_the_commands(self):
        """Rate, bottleneck, paths, alternatives and resources, and each path's rate in the table of the curves."""
        page = self.open_planner()
        for values in ({"length": 4, "frame": 64}, {"length": 8, "frame": 1518, "cores": 3}, {"length": 3, "frame": 512, "chains": 2}):
            self.set(page, **values)
            told = self.command(page)
            self.assertEqual(page.text_content("#mpps"), digits(told["scale"]))
            self.assertEqual(page.text_content("#limit"), told["binding_limit"])
            self.assertEqual(page.text_content("#vfs"), str(told["vfs"]))
            self.assertEqual(page.text_content("#busy"), f"{told['switch_cores']:.1f}")
            guests = self.rows(page, "guest-table")
            self.assertEqual([row[:3] for row in guests], [[one["adapter"], one["path"], one["binding_limit"]] for one in told["adapters"]])
            for row, one in zip(guests, told["adapters"]):
                self.assertTrue(row[4].startswith(one["otherwise"]["path"] + ": "), row)
                self.assertTrue(row[4].endswith(f"({one['otherwise']['binding_limit']})"), row)
            resources = [[one["limit"], one["of"] or "all"] for one in told["resources"] if one["taken"] >= 0.001]
            self.assertEqual([row[:2] for row in self.rows(page, "resource-table")], resources)
            row = next(row for row in self.rows(page, "point-table") if row[0] == f"{values['length']} guests, {values['frame']} B")
            for cell, path in ((1, "vf"), (2, "synthetic"), (4, "kernel")):
                alone = self.command(page, path)
                self.assertEqual(row[cell], f"{digits(alone['scale'])} Mpps, {alone['binding_limit']}", path)

    def test_crossovers_are_where_the_command_changes(self):
        """Marked lengths of a chain: one guest less is better on VFs."""
        page = self.open_planner("?frame=64")
        words = page.get_attribute("#plots .chart:nth-child(1) .plot", "aria-label")
        found = re.search(r"From (\d) guests on, synthetic carries more", words)
        self.assertIsNotNone(found, words)
        for length, better in ((int(found[1]) - 1, "vf"), (int(found[1]), "synthetic")):
            self.set(page, length=length)
            rates = {path: self.command(page, path)["scale"] for path in ("vf", "synthetic")}
            self.assertEqual(max(rates, key=rates.get), better, (length, rates))

    def test_one_request_at_a_time(self):
        """While a slider moves no request waits for another, and the last one is for where it stopped."""
        page = self.open_planner()
        flying, most = 0, 0

        def asked(request):
            nonlocal flying, most
            if "/v1/plan" in request.url:
                flying += 1
                most = max(most, flying)

        def answered(request):
            nonlocal flying
            if "/v1/plan" in request.url:
                flying -= 1

        page.on("request", asked)
        page.on("requestfinished", answered)
        page.evaluate("""async () => {
            const slider = document.getElementById("frame");
            for (let value = 64; value <= 1518; value += 2) {
                slider.value = value;
                slider.dispatchEvent(new Event("input"));
                if (value % 128 === 0) await new Promise(resume => setTimeout(resume, 5));
            }
        }""")
        wait_until(page, "() => new URLSearchParams(document.getElementById('figures').dataset.query).get('frame') === '1518'")
        self.assertEqual(most, 1)
        self.assertEqual(page.text_content("#frame-shown"), "1518 B")
        page.evaluate("document.getElementById('frame').dispatchEvent(new Event('change'))")
        self.assertIn("frame=1518", page.url)
        self.assertEqual(page.text_content("#mpps"), digits(self.command(page)["scale"]))

    def test_keyboard(self):
        """Each control is reached, and an arrow key moves a slider and the figures."""
        page = self.open_planner("?length=2")
        self.check_keyboard(page)
        before = page.text_content("#mpps")
        page.focus("#length")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        wait_until(page, "() => document.querySelectorAll('#chain li').length === 6")
        self.assertNotEqual(page.text_content("#mpps"), before)

    def test_the_software_nic_has_no_card(self):
        """A host with the software NIC takes no NIC, and begins with its own cores."""
        page = self.open_planner()
        page.select_option("#host", "shunt")
        wait_until(page, "() => document.getElementById('nic').disabled")
        self.assertEqual(page.text_content("#cores-shown"), "1")
        told = self.command(page)
        self.assertEqual((told["nic"], told["host"], digits(told["scale"])), (None, "shunt", page.text_content("#mpps")))
        page.select_option("#host", "nfv-2017")
        wait_until(page, "() => document.getElementById('nic').value === 'xl710'")
        self.assertEqual(page.text_content("#cores-shown"), "9")

    def test_the_token_is_asked_for(self):
        """Nothing is shown without it."""
        page = self.browser.page(viewport=WIDTHS["wide"])
        self.addCleanup(page.context.close)
        page.goto(f"{self.origin}/plan.html")
        page.wait_for_selector("#login:not([hidden])")
        self.assertFalse(page.is_visible("#figures"))
        self.assertEqual(complaints(page), [])
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("#figures:not([hidden])")
        self.assert_quiet(page, expected=("status of 401",))

    def test_screens(self):
        """Both themes and widths."""
        self.check_screens("plan", self.open_planner, lambda page: self.set(page, length=6, frame=512))


def point(pattern, path, guests, mpps, **more):
    """A point of a run, as the lab writes it."""
    frame = more.pop("frame_bytes", 64)
    whole = {
        "pattern": pattern, "path": path, "vms": guests, "frame_bytes": frame, "seconds": 1.0, "load": "closed", "ring": "split",
        "mpps": mpps, "gbps": mpps * (frame - 4) * 8 / 1000, "rx_mpps": mpps, "returned_mpps": mpps, "offered_mpps": mpps,
        "lost_frames": 0, "switch_cycles_per_frame": 1000 / mpps, "generator_limit_mpps": 1000.0, "bottleneck": "switch",
        "guests": [], "drops": {}, "round_trip_cycles": 140.0, "others_share": 0.0,
    }  # fmt: skip
    return whole | more


def run(points, **more):
    """A run of `shunt lab` as its file has it."""
    machine = {"cpu_model": "AMD EPYC", "cores": 2, "tsc_mhz": 2600.0, "hypervisor": True}
    started = {"unix_s": 1_790_000_000, "utc": "2026-09-21T13:46:40Z"}
    return {
        "schema": 2, "version": "0.1.0", "command": "shunt lab", "started": started, "machine": machine, "points": points, "notes": [],
    } | more  # fmt: skip


def two_runs():
    """Runs whose ratios are known: 1.5; slots that vary; other distances; a lower bound; a point that lost frames."""
    ns = "north-south"
    transfer = {
        "experiment": "netperf", "workload": "tcp-stream", "pattern": ns, "path": "vf", "streams": 4, "send_bytes": 64,
        "buffer_kib": None, "seconds": 2.0, "rounds": 3, "gbps": [3.0, 4.0, 5.0], "limit": 90.0, "published": 6.31, "bottleneck": "switch",
    }  # fmt: skip
    side = {"mpps": [1.0, 2.0, 3.0], "gbps": [4.0, 5.0, 6.0], "switch_cycles_per_frame": [50.0, 60.0, 70.0], "lost_share": 0.0}
    receive = {"frame_bytes": 1518, "guests": 4, "vmq": side, "synthetic": side, "generator_bound": False, "rounds": 5,
               "published": {"without_gbps": 5.4, "with_gbps": 9.3}}  # fmt: skip
    copy = {"setup": "together", "file_mib": 256, "rounds": 3, "guests": [
        {"path": path, "gbps": [1.0, 2.0, 3.0], "seconds": [4.0, 5.0, 6.0], "cpu_s_per_gib": [0.1, 0.2, 0.3]}
        for path in ("vf", "synthetic", "vf", "synthetic")
    ]}  # fmt: skip
    first = [point(ns, "vf", 1, mpps) for mpps in (9.0, 10.0, 12.0)]
    first += [point(ns, "vf", 2, 20.0), point(ns, "vf", 2, 7.0, lost_frames=5)]
    first += [point(ns, "vhost", 1, 4.0), point(ns, "vhost", 2, 5.0), point(ns, "virtio", 1, 0.5)]
    second = [point(ns, "vf", 1, mpps) for mpps in (14.0, 15.0, 16.0)] + [point(ns, "vf", 2, 30.0)]
    second += [point(ns, "vhost", 1, 8.0, round_trip_cycles=900.0), point(ns, "vhost", 2, 9.0, bottleneck="generator")]
    first = run(first, transfers=[transfer], receives=[receive], copies=[copy])
    second = run(second, transfers=[transfer | {"gbps": [6.0, 8.0, 10.0]}])
    second["machine"] = second["machine"] | {"cpu_model": "Xeon"}
    return first, second


@STANDIN
@needs_browser
class Lab(Pages):
    """Figures of the files, ratios, and what is not compared."""

    ready = "() => document.querySelectorAll('#headline-table tbody tr').length > 10 && document.getElementById('plots').dataset.shown"

    def open_lab(self, *files, **options):
        """The page with these runs: paths of files, or runs."""
        page = self.open_page("/lab.html", self.ready, **options)
        for place, file in zip("ab", files):
            if not isinstance(file, str):
                name = os.path.join(self.daemon.run_dir, f"run-{place}.json")
                with open(name, "w", encoding="utf-8") as to:
                    json.dump(file, to)
                file = name
            page.set_input_files(f"#file-{place}", file)
            wait_until(page, "name => document.getElementById('run-table').textContent.includes(name)", os.path.basename(file))
        return page

    def choose(self, page, group, pick, metric="mpps"):
        """Chooses a measurement; returns its rows."""
        page.select_option("#group", group)
        page.select_option("#pick", str(pick))
        page.select_option("#metric", metric)
        wait_until(
            page, "start => document.getElementById('plots').dataset.shown.startsWith(start)", f"{group}|{pick}|{metric}|"
        )
        return self.rows(page, "result-table")

    def test_published_figures_stand_alone(self):
        """Without a run: those of the tables of the repository, all of them."""
        page = self.open_lab()
        with open(os.path.join(ROOT, "published", "nfv_dpdk_forwarding.csv"), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        paths = {"sriov": "vf", "vhost": "vhost", "virtio": "virtio"}
        for pattern in ("north-south", "east-west"):
            for frame in ("64", "1518"):
                shown = self.choose(page, f"forward {pattern} closed split", frame)
                its = [row for row in rows if (row["pattern"], row["frame_bytes"]) == (pattern, frame)]
                wanted = {(row["vms"], paths[row["interface"]]): digits(float(row["mpps"])) for row in its}
                self.assertEqual({(row[0], row[1]): row[2] for row in shown}, wanted)
        with open(os.path.join(ROOT, "published", "headlines.csv"), encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual([row[5] for row in self.rows(page, "headline-table")], [line["note"] for line in lines])

    def test_figures_are_the_files(self):
        """A run of the lab that the repository has: each point, beside the paper's."""
        page = self.open_lab(RUN)
        with open(RUN, encoding="utf-8") as file:
            points = json.load(file)["points"]
        for pattern in ("north-south", "east-west"):
            for frame in (64, 256, 1518):
                for metric, field in (("mpps", "mpps"), ("gbps", "gbps"), ("cycles", "switch_cycles_per_frame")):
                    its = [one for one in points if (one["pattern"], one["frame_bytes"]) == (pattern, frame)]
                    if not its:
                        continue
                    shown = self.choose(page, f"forward {pattern} closed split", frame, metric)
                    wanted = {(str(one["vms"]), one["path"]): digits(one[field]) if one[field] is not None else "-" for one in its}
                    self.assertEqual({(row[0], row[1]): row[2] for row in shown}, wanted, (pattern, frame, metric))

    def test_two_runs_are_compared_where_they_can_be(self):
        """Ratios with their ends; and a reason where there is none."""
        page = self.open_lab(*two_runs())
        rows = {(row[0], row[1]): row[2:] for row in self.choose(page, "forward north-south closed split", 64)}
        self.assertEqual(rows["1", "vf"][:3], ["10.0 (9.00-12.0, 3 slots)", "15.0 (14.0-16.0, 3 slots)", "1.50 (1.17-1.78), CPUs 120-300"])
        # The slot that lost frames counts for nothing.
        self.assertEqual(rows["2", "vf"][:3], ["20.0", "30.0", "1.50 (1.50-1.50), CPUs 120-300"])
        self.assertEqual(rows["1", "vhost"][2], "other distance of CPUs")
        self.assertEqual(rows["2", "vhost"][1:3], ["> 9.00", "generator was the limit"])
        self.assertEqual(rows["1", "virtio"][1:3], ["-", "only in one run"])
        caveats = page.text_content("#caveats")
        self.assertIn("different machines or compilers (cpu_model)", caveats)
        self.assertIn("not interleaved", caveats)
        [row] = self.choose(page, "transfer tcp-stream north-south", "4", "gbps")[:1]
        self.assertEqual(row[2:5], ["4.00 (3.00-5.00, 3 slots)", "8.00 (6.00-10.0, 3 slots)", "2.00 (1.20-3.33)"])
        self.assertEqual(row[6], "6.31")
        rows = self.choose(page, "receive", 4, "gbps")
        self.assertEqual([[row[1], row[2], row[6]] for row in rows], [["vmq", "5.00 (4.00-6.00, 5 slots)", "9.30"], ["synthetic", "5.00 (4.00-6.00, 5 slots)", "5.40"]])
        rows = self.choose(page, "copy", 256, "seconds")
        self.assertEqual([row[1] for row in rows], ["vf, guest 0", "vf, guest 2", "synthetic, guest 1", "synthetic, guest 3"])
        page.click("#close")
        self.assertFalse(page.is_visible("#facts"))
        self.assertEqual(len(self.rows(page, "result-table")[0]), 3)

    def test_other_files_are_refused(self):
        """Each with its reason; nothing of the file is shown."""
        page = self.open_lab()
        for contents, says in (
            ("{", "is no JSON"),
            ("[]", "has no points, machine and start of a run"),
            (json.dumps(run([], schema=9)), "is of schema 9, and this page reads up to 2"),
            (json.dumps(run([None])), "cannot be read"),
        ):
            page.set_input_files("#file-a", {"name": "odd.json", "mimeType": "application/json", "buffer": contents.encode()})
            wait_until(page, "says => document.getElementById('problem').textContent.includes(says)", f"odd.json {says}")
            self.assertFalse(page.is_visible("#facts"))
        page.set_input_files("#file-a", RUN)
        wait_until(page, "() => document.getElementById('problem').textContent === ''")
        self.assertTrue(page.is_visible("#facts"))

    def test_text_of_a_file_is_no_markup(self):
        """Names of a file are shown as they are."""
        first, _ = two_runs()
        first["command"] = "<img src=x onerror=alert(1)>"
        page = self.open_lab(first)
        self.assertIn(first["command"], page.text_content("#run-table"))
        self.assertEqual(page.evaluate("document.querySelectorAll('main img').length"), 0)

    def test_keyboard(self):
        """Each control is reached, and a measurement is chosen by keys."""
        page = self.open_lab(*two_runs())
        self.check_keyboard(page)
        page.focus("#metric")
        page.keyboard.press("ArrowDown")
        wait_until(page, "() => document.getElementById('plots').dataset.shown.endsWith('|gbps|Gbit/s')")

    def test_screens(self):
        """Both themes and widths, with two runs."""
        self.check_screens("lab", lambda **options: self.open_lab(RUN, RUN, **options), lambda page: self.choose(page, "forward east-west closed split", 64))


class Model:
    """Counters of an hour whose rates are known: a wire's and a neighbour's, which change every ten minutes."""

    def __init__(self, live, state):
        self.live, self.state = live, state

    @staticmethod
    def rates(second):
        """Frames a second in the second that ends here: by the wire, between guests, dropped."""
        step = second // 600
        return 1000 * (step + 1), 20_000 - 3000 * step, 10 * step

    def lines(self):
        """A recording: its format, and a reading a second."""
        yield json.dumps({"shunt_recording": 1})
        wire = local = dropped = 0
        for second in range(READINGS):
            if second:
                rates = self.rates(second)
                wire, local, dropped = wire + rates[0], local + rates[1], dropped + rates[2]
            ports = []
            for port in self.live["stats"]["ports"]:
                none = {name: 0 for name, count in port.items() if isinstance(count, int)}
                zero = port | none | {"drops": {}, "faults": {}}
                if port["name"] == "nic0/web":
                    zero |= {"tx_frames": wire + dropped, "tx_bytes": 100 * (wire + dropped), "tx_uplink_frames": wire,
                             "tx_uplink_bytes": 100 * wire, "drops": {"tx_spoofed_mac": dropped}}  # fmt: skip
                if port["name"] == "nic0/cache":
                    zero |= {"rx_frames": local, "rx_bytes": 1000 * local}
                ports.append(zero)
            reading = {
                "time_ms": START_MS + 1000 * second, "clock_us": START_US + 1_000_000 * second,
                "stats": self.live["stats"] | {"ports": ports}, "in_force": self.live["in_force"],
                "events": {"last": second, "lost": 0, "events": [
                    {"number": second, "time_ms": START_MS + 1000 * second, "kind": "path", "subject": "adapter web", "text": f"second {second}"}
                ] if second % 3 == 2 else []}, "restarted": second == 0,
            }  # fmt: skip
            yield json.dumps(reading | ({"document": self.state} if second == 0 else {}))


@STANDIN
@needs_browser
class Hour(Pages):
    """An hour of readings at 60 times their speed, on a clock that the test moves."""

    def test_an_hour_is_shown_as_it_was(self):
        """Figures at several moments, the range of the charts, bounded memory, and the last figures."""
        self.daemon.apply(document(self.daemon.path))
        model = Model(self.daemon.ask("/v1/live?since=0").body, self.daemon.ask("/v1/state").body)
        path = os.path.join(self.daemon.run_dir, "hour.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(model.lines()) + "\n")
        page = self.browser.page(viewport=SMALL)  # 3600 readings are painted
        self.addCleanup(page.context.close)
        self.addCleanup(self.assert_quiet, page)
        page.clock.install()
        page.goto(f"{self.origin}/#token={TOKEN}")
        page.wait_for_selector("#status[data-state=live]")
        page.wait_for_selector(".chart canvas")
        page.select_option("#pace", "60")
        page.get_by_role("button", name="1 h").click()
        page.evaluate("scrollTo(0, 0)")
        page.clock.pause_at(page.evaluate("Date.now()") + 1000)
        page.set_input_files("#recording", path)
        page.wait_for_selector("#status[data-state=play]")
        memory = []
        for _ in range(6):
            page.clock.run_for(10_050)
            second = self.check_figures(page)
            memory.append(self.heap(page))
        self.assertEqual(second, READINGS - 1)
        self.assertTrue(page.text_content("#status-text").endswith("its end"))
        self.check_range(page)
        events = page.evaluate("document.querySelectorAll('#event-list li').length")
        self.assertEqual(events, 1024)
        self.assertEqual(page.text_content("#event-list li:first-child .words"), f"adapter web second {READINGS - 1}")
        print(f"    {memory[2] >> 20} MiB after half, {memory[-1] >> 20} MiB after all")
        self.assertLess(memory[-1], MEMORY_MAX)
        self.assertLess(memory[-1] - memory[2], GROWTH_MAX)

    def check_figures(self, page):
        """The figures are those of the model at the reading that is shown; returns its second."""
        clock = int(page.evaluate("document.getElementById('figures').dataset.clock"))
        second = (clock - START_US) // 1_000_000
        wire, local, lost = model = Model.rates(second)
        dials = [value(page.text_content(f"#dial-{name}") + " " + page.text_content(f"#dial-{name}-unit")) for name in ("frames", "bits", "lost")]
        wanted = [wire + local, 8 * (100 * wire + 1000 * local), lost]
        for shown, number in zip(dials, wanted):
            self.assertAlmostEqual(shown, number, delta=0.006 * number, msg=(second, model, dials))
        rows = {row[0]: row for row in self.rows(page, "adapter-table")}
        self.assertAlmostEqual(value(rows["web"][6]), wire + lost, delta=0.006 * (wire + lost))
        self.assertAlmostEqual(value(rows["cache"][8]), local, delta=0.006 * local)
        print(f"    second {second}: {dials}")
        return second

    def check_range(self, page):
        """The charts have the whole hour: the first rates at the left end, the last ones at the right."""
        plot = page.locator("#charts .chart:nth-child(2)")
        plot.scroll_into_view_if_needed()
        box = plot.locator(".u-over").bounding_box()
        for share, second in ((0.001, 1), (0.999, READINGS - 1)):
            page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
            wire, local, _ = Model.rates(second)
            shown = [value(re.sub(r"^\S+ ", "", words)) for words in plot.locator(".readout .key").all_text_contents()]
            for number, wanted in zip(shown, (wire, local)):
                self.assertAlmostEqual(number, wanted, delta=0.006 * wanted, msg=(share, shown))

    def heap(self, page):
        """Bytes of the page's objects, after the garbage is gone."""
        session = page.context.new_cdp_session(page)
        session.send("HeapProfiler.collectGarbage")
        used = session.send("Runtime.getHeapUsage")["usedSize"]
        session.detach()
        return int(used)


