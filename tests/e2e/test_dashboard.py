"""The dashboard in a real browser: figures, events, keyboard, accessibility, and what it refuses."""

import json
import os
import pty
import re
import select
import subprocess
import time
import unittest

from bench import cpus
from browser import TARGET, Browser, complaints, needs_browser, wait_until
from labguest import LabGuests
from managed import TOKEN, Managed, large

STANDIN = unittest.skipIf("SHUNT_E2E_STANDIN" in os.environ, "the stand-in has no API")
SCREENSHOTS = os.path.join(TARGET, "e2e-screenshots")
WIRE_MAC, FORGED_MACS = "02:00:00:00:00:77", ["02:00:00:00:00:98", "02:00:00:00:00:99"]
ADAPTERS = {"web": "vf", "db": "vf", "cache": "vmq", "app": "synthetic", "batch": "synthetic", "probe": "vf", "rogue": "vf", "spare": "vf"}
MACS = {name: f"02:00:00:00:01:{i:02x}" for i, name in enumerate(ADAPTERS)}
UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
WIDTHS = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 390, "height": 844}}
# The figures of dials and adapters.
FIGURES = "[...document.querySelectorAll('.figure, #adapter-table td.number')].map(it => it.textContent)"
# What the page shows at one moment.
SHOWN = """() => ({
    clock: document.getElementById("figures").dataset.clock,
    dials: Object.fromEntries(["bits", "frames"].map(dial =>
        [dial, document.getElementById("dial-" + dial).textContent + " " + document.getElementById(`dial-${dial}-unit`).textContent])),
    rows: [...document.querySelectorAll("#adapter-table tbody tr")].map(row => [...row.cells].map(cell => cell.textContent)),
})"""
TOLERANCE = 0.02  # promise: figures on the page agree with the API's


def document(path):
    """A NIC with an uplink, a switch, and adapters on each path. `path(name)` is that of a socket."""
    adapters = [
        {"name": name, "switch": "sw0", "mac": MACS[name], "path": wanted, "iov_weight": 50,
         "attachment": {"socket": path(f"{name}.sock")}}
        for name, wanted in ADAPTERS.items()
    ]  # fmt: skip
    nic = {"name": "nic0", "total_vfs": 8, "num_vfs": 8, "vmq_queues": 2, "uplink": {"socket": path("wire.sock")}}
    return {
        "version": 1,
        "nic": [nic],
        "switch": [{"name": "sw0", "nic": "nic0", "iov": True}],
        "adapter": adapters,
    }


def senders(daemon):
    """Guests that send: to the wire, to each other, and two with others' addresses, which the spoof check drops."""
    for pair in (("wire", "web"), ("db", "cache"), ("app", "batch"), ("probe", "rogue")):
        macs = FORGED_MACS if "rogue" in pair else [MACS.get(name, WIRE_MAC) for name in pair]
        guests = LabGuests([daemon.path(f"{name}.sock") for name in pair], macs)
        guests.go()
        yield guests


def value(words):
    """The number of a text such as `6.29 Gbps`."""
    number, prefix = re.match(r"([\d.]+) ?([kMGT]?)", words).groups()
    return float(number) * UNITS[prefix]


def rates(before, now):
    """Rates between two readings of the API, computed apart from the page: totals, and by port."""
    seconds = (now["clock_us"] - before["clock_us"]) / 1e6
    old = {port["name"]: port for port in before["stats"]["ports"]}
    ports = {
        port["name"]: {name: (port[name] - old[port["name"]][name]) / seconds for name in port if "frames" in name or "bytes" in name}
        for port in now["stats"]["ports"]
    }
    total = totals(ports)
    return total | {"bytes": 8 * total["bytes"]}, ports


def totals(ports):
    """Bytes and frames to and from the wire, and from guest to guest, of ports by name."""
    guests = [port for name, port in ports.items() if not name.endswith("/uplink")]
    of_wire = {unit: sum(port[f"tx_uplink_{unit}"] + port[f"rx_uplink_{unit}"] for port in guests) for unit in ("bytes", "frames")}
    return {unit: wire + sum(port[f"rx_{unit}"] - port[f"rx_uplink_{unit}"] for port in guests) for unit, wire in of_wire.items()}


class Shown(unittest.TestCase):
    """A daemon with its API over TCP, and a browser."""

    limit_s = 180

    @classmethod
    def setUpClass(cls):
        cls.daemon = Managed(cpu=cpus()[0], tcp=True)
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.start()
        cls.daemon.wait_ready()
        cls.origin = f"http://127.0.0.1:{cls.daemon.port}"
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)
        os.makedirs(SCREENSHOTS, exist_ok=True)

    def open(self, width="wide", token=TOKEN, **options):
        """The page with live figures; at the end it must have complained of nothing."""
        page = self.browser.page(viewport=WIDTHS[width], **options)
        self.addCleanup(page.context.close)
        page.goto(f"{self.origin}/" + (f"#token={token}" if token else ""))
        if token == TOKEN:
            page.wait_for_selector("#status[data-state=live]")
            page.wait_for_selector(".chart canvas")
        self.addCleanup(self.assert_quiet, page)
        return page

    def assert_quiet(self, page, expected=()):
        """No complaint in the console, and no request to another origin."""
        said = [line for line in page.said if not any(text in line for text in expected)]
        self.assertEqual(said, [])
        away = [url for url in page.asked if not url.startswith(self.origin + "/")]
        self.assertEqual(away, [])


@STANDIN
@needs_browser
class Traffic(Shown):
    """With guests that send: two by the wire, four to each other."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        daemon = cls.daemon
        daemon.apply(document(daemon.path))
        for guests in senders(daemon):
            cls.addClassCleanup(guests.kill)

    def readings(self, page, number):
        """Readings of the API, each with the one before and what the page shows of it: `number` triples."""
        answers = []
        page.on("response", lambda answer: "/v1/live" in answer.url and answers.append(answer))
        found, last = [], None
        while len(found) < number:
            wait_until(page, "clock => document.getElementById('figures').dataset.clock !== clock", last)
            shown = page.evaluate(SHOWN)
            last = shown["clock"]
            readings = [answer.json() for answer in answers]
            clocks = [str(reading["clock_us"]) for reading in readings]
            at = clocks.index(last) if last in clocks else 0
            if at > 0:
                found.append((readings[at - 1], readings[at], shown))
        return found

    def test_figures_agree_with_the_api(self):
        """Dials and table beside rates computed from the same readings; and those lie between other readings."""
        page = self.open()
        earliest = self.daemon.ask("/v1/stats").body
        found = self.readings(page, 6)
        latest = self.daemon.ask("/v1/stats").body
        for before, now, shown in found:
            for first, port, last in zip(earliest["ports"], now["stats"]["ports"], latest["ports"]):
                self.assertLessEqual(first["tx_frames"], port["tx_frames"])
                self.assertLessEqual(port["tx_frames"], last["tx_frames"])
            totals, ports = rates(before, now)
            self.assertGreater(totals["frames"], 1000, "no traffic")
            for dial, unit in (("bits", "bytes"), ("frames", "frames")):
                self.assert_near(value(shown["dials"][dial]), totals[unit], dial)
            self.assertEqual([row[0] for row in shown["rows"]], list(ADAPTERS))
            for row in shown["rows"]:
                port = ports[f"nic0/{row[0]}"]
                for cell, name, factor in ((5, "tx_bytes", 8), (6, "tx_frames", 1), (7, "rx_bytes", 8), (8, "rx_frames", 1)):
                    self.assert_near(value(row[cell]), factor * port[name], (row[0], name))

    def assert_near(self, shown, expected, what):
        """Within the tolerance; below 1 a second the page may say 0."""
        self.assertLessEqual(abs(shown - expected), max(TOLERANCE * expected, 1.0), f"{what}: {shown} for {expected}")

    def test_drops_are_explained(self):
        """Reason, meaning, cause and remedy as `shunt explain` has them, and the rate on its dial."""
        page = self.open()
        page.wait_for_selector("#drop-table tbody tr:nth-child(2)")
        page.wait_for_timeout(1500)
        told = json.loads(subprocess.check_output([self.daemon.program, "explain", "tx_spoofed_mac", "--json"]))
        rows = page.eval_on_selector_all(
            "#drop-table tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
        )
        for name in ("probe", "rogue"):
            [row] = [row for row in rows if row[:2] == [f"nic0/{name}", "tx_spoofed_mac"]]
            self.assertEqual(row[4:], [told[field].replace("`", "") for field in ("meaning", "cause", "remedy")])
        self.assertGreater(value(page.text_content("#dial-lost")), 0)

    def test_a_path_change_appears(self):
        """In the list of events and in the table, within 2 s of the command's end."""
        page = self.open()
        for path in ("synthetic", "vf"):
            self.daemon.says("adapter", "set", "db", "--path", path)
            took = wait_until(
                page,
                """path => {
                    const row = [...document.querySelectorAll("#adapter-table tbody tr")].find(row => row.cells[0].textContent === "db");
                    const [event] = document.querySelectorAll("#event-list li[data-kind=path]");
                    return row.cells[2].textContent.startsWith(path) && event.textContent.includes("adapter db") &&
                        event.textContent.includes("-> " + path);
                }""",
                path,
            )
            print(f"    path {path}: {took:.2f} s")
            self.assertLess(took, 2.0)

    def test_a_change_shows_its_plan_first(self):
        """By keyboard: nothing changes before the plan is applied, and a wrong value is explained."""
        page = self.open()
        page.focus("#change-open")
        page.keyboard.press("Enter")
        page.select_option("#change-adapter", "spare")
        page.fill("#change-iov_weight", "101")
        page.click("#change-show")
        wait_until(page, "() => document.getElementById('change-plan').textContent.includes('101')")
        self.assertTrue(page.is_disabled("#change-apply"))
        page.fill("#change-iov_weight", "7")
        page.select_option("#change-path", "synthetic")
        before = self.daemon.export()
        page.click("#change-show")
        wait_until(page, "() => !document.getElementById('change-apply').disabled")
        *changes, move = page.eval_on_selector_all("#change-plan li", "lines => lines.map(line => line.textContent)")
        self.assertEqual(changes, ["change adapter spare: iov_weight 50 → 7", "change adapter spare: path vf → synthetic"])
        self.assertRegex(move, r"\Amove adapter spare: path vf \d → synthetic ")
        self.assertEqual(complaints(page), [])
        page.screenshot(path=os.path.join(SCREENSHOTS, "wide-light-change.png"))
        self.assertEqual(self.daemon.export(), before)
        page.click("#change-apply")
        wait_until(page, "() => !document.getElementById('change').open")
        spare = self.daemon.ask("/v1/adapters/spare").body
        self.assertEqual((spare["iov_weight"], spare["path"]), (7, "synthetic"))
        page.said = [line for line in page.said if "status of 422" not in line]

    def test_a_recording_shows_the_same_figures(self):
        """The last figures of a recording are those that the page showed when it was saved."""
        page = self.open(accept_downloads=True)
        page.wait_for_timeout(1500)
        page.click("#record")
        page.wait_for_timeout(4500)
        with page.expect_download() as saved:
            shown = page.evaluate("() => { document.getElementById('record').click(); return %s; }" % FIGURES)
        path = os.path.join(self.daemon.run_dir, "recording.jsonl")
        saved.value.save_as(path)
        page.select_option("#pace", "60")
        page.set_input_files("#recording", path)
        wait_until(page, "() => document.getElementById('status-text').textContent.endsWith('its end')")
        self.assertEqual(page.evaluate(f"() => {FIGURES}"), shown)
        # Also if an answer is on its way, which has only the events after those that are known.
        held = []
        page.route("**/v1/live*", lambda route: route.continue_() if held else held.append(route))
        while not held:
            page.wait_for_timeout(50)
        page.click("#open")
        held[0].continue_()
        page.wait_for_selector("#status[data-state=live]")
        self.assertGreater(page.evaluate("document.querySelectorAll('#event-list li').length"), 3)

    def test_a_file_that_is_no_recording_is_explained(self):
        """The page says what is wrong with it, and stays live."""
        page = self.open()
        path = os.path.join(self.daemon.run_dir, "broken.jsonl")
        first = '{"shunt_recording": 1}\n'
        for words, told in (("{}", "not a recording"), (first, "no readings"), (first + '{"clock_us": 1}', "line 2 is no reading")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(words)
            page.set_input_files("#recording", path)
            wait_until(page, "told => document.getElementById('problem').textContent.includes(told)", f"broken.jsonl: {told}")
            self.assertEqual(page.get_attribute("#status", "data-state"), "live")

    def test_the_history_is_older_than_the_page(self):
        """The charts begin with the daemon's readings; these are its counters."""
        page = self.open()
        page.wait_for_selector("#charts canvas")
        before = self.counted()
        history = self.daemon.ask("/v1/history").body
        self.assertGreater(len(history), 3)
        now = history[-1]
        deadline = time.monotonic() + 10
        while now["clock_us"] == history[-1]["clock_us"]:
            self.assertLess(time.monotonic(), deadline, "no new reading")
            time.sleep(0.1)
            now = self.daemon.ask("/v1/history").body[-1]
        after = self.counted()
        for unit in ("bytes", "frames"):
            read = now[f"wire_{unit}"] + now[f"local_{unit}"]
            self.assertLessEqual(before[unit], read)
            self.assertLessEqual(read, after[unit])

    def counted(self):
        """Totals of the daemon's counters."""
        return totals({port["name"]: port for port in self.daemon.ask("/v1/stats").body["ports"]})

    def test_wide_screens(self):
        """1280 pixels, in both themes."""
        self.check_screens("wide")

    def test_narrow_screens(self):
        """390 pixels, in both themes."""
        self.check_screens("narrow")

    def check_screens(self, width):
        """Axe finds nothing, the page is no wider than the screen, and nothing moves."""
        for theme in ("light", "dark"):
            with self.subTest(theme=theme):
                page = self.open(width, color_scheme=theme)
                page.evaluate("""() => {
                    window.moved = 0;
                    new PerformanceObserver((list) => {
                        for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.moved += entry.value;
                    }).observe({type: "layout-shift"});
                }""")
                page.wait_for_timeout(4500)
                self.assertEqual(complaints(page), [])
                needed, available = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
                self.assertLessEqual(needed, available)
                self.assertLess(page.evaluate("window.moved"), 0.01)
                for part, whole in (("first", False), ("page", True)):
                    page.screenshot(path=os.path.join(SCREENSHOTS, f"{width}-{theme}-{part}.png"), full_page=whole)
                page.context.close()

    def test_the_theme_has_a_switch(self):
        """The choice holds against the system's, also after a reload."""
        page = self.open(color_scheme="light")
        ground = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(ground)
        page.select_option("#theme", "dark")
        dark = page.evaluate(ground)
        self.assertNotEqual(light, dark)
        page.reload()
        page.wait_for_selector("#status[data-state=live]")
        self.assertEqual(page.evaluate(ground), dark)

    def test_keyboard(self):
        """The tabulator reaches each table, the list of events, all choices; and the focus is seen."""
        page = self.open()
        page.wait_for_timeout(1500)
        wanted = set(page.evaluate("""[...document.querySelectorAll("[tabindex='0'], nav a, main select, main button, main input")]
            .filter(node => node.offsetParent !== null).map((node, i) => node.dataset.at = "n" + i)"""))
        self.assertGreaterEqual(len(page.query_selector_all(".scroll table")), 4)
        self.assertTrue(all(one.evaluate("it => it.closest('.scroll').tabIndex === 0") for one in page.query_selector_all("main table")))
        reached = set()
        for _ in range(len(wanted) + 20):
            page.keyboard.press("Tab")
            focus = page.evaluate("""() => {
                const it = document.activeElement, style = getComputedStyle(it);
                return [it.dataset.at ?? "", style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2, it.outerHTML.slice(0, 80)];
            }""")
            self.assertTrue(focus[1] or focus[2].startswith("<body"), f"no visible focus: {focus[2]}")
            reached.add(focus[0])
        self.assertEqual(wanted - reached, set())
        page.focus("#adapter-table th:nth-child(3) button")
        page.keyboard.press("Enter")
        paths = page.eval_on_selector_all("#adapter-table tbody tr", "rows => rows.map(row => row.cells[2].textContent)")
        self.assertEqual(paths, sorted(paths))


@STANDIN
@needs_browser
class Refusals(Shown):
    """Without the token, and for other sites."""

    def test_nothing_is_shown_without_a_token(self):
        """The page asks for it; a wrong one is refused, and the right one, typed, shows the figures."""
        page = self.browser.page(viewport=WIDTHS["wide"])
        self.addCleanup(page.context.close)
        page.goto(f"{self.origin}/")
        page.wait_for_selector("#login:not([hidden])")
        self.assertFalse(page.is_visible("#figures"))
        self.assertEqual(page.text_content("#event-list"), "")
        self.assertEqual(complaints(page), [])
        page.screenshot(path=os.path.join(SCREENSHOTS, "wide-light-token.png"))
        for token in ("not-the-token-of-the-daemon", TOKEN):
            page.keyboard.type(token)
            page.keyboard.press("Enter")
            if token != TOKEN:
                wait_until(page, "() => document.getElementById('login-error').textContent !== ''")
        page.wait_for_selector("#figures:not([hidden])")
        self.assertFalse(page.is_visible("#login"))
        self.assert_quiet(page, expected=("status of 401",))

    def test_the_token_leaves_the_address(self):
        """It is in no bookmark, and a reload has it still."""
        page = self.open()
        self.assertEqual(page.url, f"{self.origin}/")
        page.reload()
        page.wait_for_selector("#status[data-state=live]")

    def test_an_address_is_opened_in_the_tab_that_asks(self):
        """That loads no page: the token is used all the same, and leaves the address."""
        page = self.browser.page(viewport=WIDTHS["wide"])
        self.addCleanup(page.context.close)
        page.goto(f"{self.origin}/#token=without%escapes")
        page.wait_for_selector("#login:not([hidden])")
        page.goto(f"{self.origin}/#token={TOKEN}")
        page.wait_for_selector("#status[data-state=live]")
        self.assertEqual(page.evaluate("location.href"), f"{self.origin}/")
        self.assert_quiet(page, expected=("status of 401",))

    def test_other_hosts_and_origins(self):
        """A name that resolves to the daemon's address, and pages of other sites, on both transports."""
        for ask in (self.daemon.ask, self.daemon.ask_tcp):
            for headers in (
                {"Host": "evil.example"},
                {"Host": f"evil.example:{self.daemon.port}"},
                {"Origin": "http://evil.example"},
                {"Origin": "null"},
                {"Host": "localhost:1", "Origin": "http://localhost:2"},
            ):
                self.assertEqual(ask("/v1/state", headers=headers).status, 403, headers)
        own = {"Host": f"localhost:{self.daemon.port}", "Origin": f"http://localhost:{self.daemon.port}"}
        self.assertEqual(self.daemon.ask_tcp("/v1/state", headers=own).status, 200)

    def test_an_upgrade_goes_on(self):
        """The page of the old process shows the figures of the new one, and its event."""
        page = self.open()
        self.daemon.upgrade()
        wait_until(page, "() => document.querySelector('#event-list li[data-kind=upgrade]') !== null")
        self.assertEqual(page.get_attribute("#status", "data-state"), "live")
        self.assertTrue(page.is_visible("#figures"))
        page.said = [line for line in page.said if "ERR_" not in line and "status of 421" not in line]

    def test_a_restart_begins_again(self):
        """The page has the events of the new daemon, though these have the numbers of those before."""
        times = []
        for _ in range(2):
            self.daemon.kill()
            self.daemon.start()
            self.daemon.wait_ready()
            if not times:
                page = self.open()
            seen = "() => [...document.querySelectorAll('#event-list li[data-kind=start] time')].map(it => it.dateTime)"
            wait_until(page, f"old => ({seen})().length === 1 && ({seen})()[0] !== old", times[-1] if times else "")
            times.append(page.evaluate(seen)[0])
            self.assertEqual(self.daemon.ask("/v1/events?since=0").body["last"], 1)
        page.said = [line for line in page.said if "ERR_" not in line]

    def test_where_it_is(self):
        """`shunt up` says it; a log gets no token, a terminal does."""
        self.assertIn(f"dashboard: {self.origin}/\n", self.daemon.log())
        self.assertNotIn(TOKEN, self.daemon.log())
        other = Managed(cpu=cpus()[0], tcp=True)
        self.addCleanup(other.close)
        ours, terminal = pty.openpty()
        self.addCleanup(os.close, ours)
        command = [other.program, "up", "--config", other.path("shunt.toml")]
        with open(other.path("log"), "wb") as log, subprocess.Popen(command, stdout=terminal, stderr=log) as process:
            try:
                os.close(terminal)
                printed = b""
                while b"token=" not in printed or not printed.endswith(b"\n"):
                    self.assertTrue(select.select([ours], [], [], 10)[0], printed)
                    printed += os.read(ours, 4096)
                address = re.search(r"dashboard: (\S+)", printed.decode())[1]
                self.assertEqual(address, f"http://127.0.0.1:{other.port}/#token={TOKEN}")
                page = self.browser.page()
                self.addCleanup(page.context.close)
                page.goto(address)
                page.wait_for_selector("#figures:not([hidden])")
            finally:
                process.terminate()


@STANDIN
@needs_browser
class Large(Shown):
    """255 VFs and 64 adapters: only what changes is written."""

    def test_changes_are_bounded(self):
        """Without traffic a second costs few writes; and a reading has a bounded size."""
        self.daemon.apply(large(self.daemon.path))
        page = self.open()
        page.wait_for_timeout(2500)
        self.assertEqual(page.evaluate("document.querySelectorAll('#adapter-table tbody tr').length"), 64)
        page.evaluate("""() => {
            window.writes = 0;
            new MutationObserver((list) => { window.writes += list.length; })
                .observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true});
        }""")
        with page.expect_response(re.compile(r"/v1/live")) as answer:
            pass
        size = len(answer.value.body())
        page.wait_for_timeout(5000)
        writes = page.evaluate("window.writes") / 5
        print(f"    {writes:.0f} writes a second, {size} bytes a reading")
        self.assertLess(writes, 60)
        self.assertLess(size, 300_000)
        self.assertEqual(complaints(page), [])
        page.fill("#filter", "guest-07")
        self.assertEqual(page.evaluate("document.querySelectorAll('#adapter-table tbody tr').length"), 1)
        page.fill("#filter", "")
        page.screenshot(path=os.path.join(SCREENSHOTS, "wide-light-large.png"), full_page=True)
