// The house as a picture: wire, NIC with PF and VFs, switch, guests; flows as lines.
//
// Guests stand in the order of their paths, so that lines of VFs and queues pass above the switch.
// A line is as wide as its rate; north/south and east/west lie beside each other.

import { at, attribute, html, Keyed, svg, text } from "./dom.js";
import { bits, ceiling } from "./format.js";

/** Most guests of a NIC that are drawn; one more stands for the others. */
const GUESTS_MAX = 14;
/** Most NICs that are drawn. */
const NICS_MAX = 4;
const TOP = 34;
/** Height of a guest's row, in few rows and in many. */
const [TALL, LOW, FEW] = [42, 33, 8];
const BOX = 26;
const LINE_MAX = 18;
const MEMORY = 60;
const ORDER = { vf: 0, vmq: 1, port: 1, none: 2, synthetic: 3 };
const PLACES = { vf: (end) => `VF ${end.vf}`, vmq: (end) => `queue ${end.queue}` };

/** Columns of a picture of this width: left and right edges. */
function columns(width) {
  const narrow = width < 560;
  const guest = narrow ? 118 : 210;
  const nic = narrow ? 92 : 170;
  const left = narrow ? 34 : 110;
  const right = width - guest;
  const free = right - (left + nic);
  const middle = left + nic + free / 2;
  const half = Math.min(52, free / 2 - 12);
  return { narrow, left, nicRight: left + nic, switchLeft: middle - half, switchRight: middle + half, right };
}

class Picture {
  constructor() {
    this.title = svg("title");
    this.ground = svg("g");
    this.flows = svg("g");
    this.boxes = svg("g");
    this.guests = svg("g");
    this.image = svg("svg", { role: "img", class: "house" }, this.title, this.ground, this.flows, this.boxes, this.guests);
    this.node = html("figure", {}, this.image);
    this.lines = new Keyed(this.flows, () => this.line());
    this.rows = new Keyed(this.guests, () => this.guest());
    this.nic = box("nic");
    this.switch = box("switch");
    this.pf = cell();
    this.uplink = cell();
    this.veb = svg("path", { class: "bus" });
    this.wire = label("strong", "start");
    this.rate = label("small", "start");
    this.nicName = label("strong", "middle");
    this.switchName = label("strong", "middle");
    this.ground.append(this.nic, this.switch);
    this.boxes.append(
      this.veb, this.pf.node, this.uplink.node, this.wire, this.rate,
      this.nicName, this.switchName,
    );
  }

  /** Two lines side by side, above a thin one that shows the connection. */
  line() {
    const parts = ["link", "ns", "ew"].map((name) => svg("path", { class: `flow ${name}` }));
    return { node: svg("g", {}, ...parts), parts };
  }

  guest() {
    const frame = svg("rect", { class: "guest", rx: 5, height: BOX });
    const name = label("name", "start");
    const rate = label("small", "end");
    const place = cell();
    return { node: svg("g", {}, frame, place.node, name, rate), frame, name, rate, place };
  }

  /** `scale`: the rate of the widest line, in bits per second. */
  show(nic, width, scale) {
    const { ends, hidden } = drawn(nic.ends);
    const x = columns(width);
    const synthetic = ends.findIndex((end) => end.path === "synthetic");
    const rows = Math.max(2, ends.length + (nic.switch && synthetic < 0 ? 1 : 0));
    const pitch = rows > FEW ? LOW : TALL;
    const height = TOP + rows * pitch + 8;
    const y = (row) => TOP + (row + 0.5) * pitch;
    const direct = synthetic < 0 ? ends.length : synthetic;
    const switchRow = nic.switch ? (direct + rows - 1) / 2 : rows - 1;
    const wireY = y(Math.max(0, (rows - 1) / 2));
    attribute(this.image, "viewBox", `0 0 ${width} ${height}`);
    attribute(this.image, "width", width);
    attribute(this.image, "height", height);
    text(this.title, `NIC ${nic.name}: ${nic.ends.length} ports`);

    place(this.nic, x.left, 22, x.nicRight - x.left, height - 26);
    const busX = x.left + (x.nicRight - x.left) * 0.42;
    const last = nic.switch ? switchRow : rows - 1;
    attribute(this.veb, "d", `M ${busX} ${y(0)} V ${y(Math.max(last, 0))}`);
    const vfs = nic.total_vfs > 0 ? `${nic.vfs.length} VFs` : "no VFs";
    move(this.nicName, (x.left + x.nicRight) / 2, 15, `${shortened(nic.name, 15)}, ${vfs}`);
    this.uplink.show(x.left, wireY, x.narrow ? "up" : "uplink");
    move(this.wire, 0, wireY - 16, "wire");
    const through = wireRate(nic);
    move(this.rate, 0, wireY + 26, x.narrow ? "" : bits(through));

    attribute(this.switch, "visibility", nic.switch ? null : "hidden");
    attribute(this.switchName, "visibility", nic.switch ? null : "hidden");
    this.pf.hide(!nic.switch);
    if (nic.switch) {
      place(this.switch, x.switchLeft, y(direct) - pitch / 2 + 3, x.switchRight - x.switchLeft, (rows - direct) * pitch - 6);
      move(this.switchName, (x.switchLeft + x.switchRight) / 2, y(switchRow) + 4, x.narrow ? "switch" : nic.switch);
      this.pf.show(x.nicRight, y(switchRow), "PF");
    }

    const lines = [{ key: "wire", from: 0, to: x.left, y: wireY, ns: through, ew: 0 }];
    lines.push({ key: "bus", from: x.left, to: busX, y: wireY, ns: through, ew: 0 });
    if (nic.switch) {
      const behind = ends.filter((end) => end.path === "synthetic");
      const ns = behind.reduce((all, end) => all + (end.rates.wireBps ?? 0), 0);
      lines.push({ key: "pf", from: busX, to: x.switchLeft, y: y(switchRow), ns, ew: 0 });
    }
    ends.forEach((end, row) => {
      if (end.path === "none") return;
      const from = end.path === "synthetic" ? x.switchRight : busX;
      const flow = { ns: end.rates.wireBps, ew: end.rates.localBoth };
      lines.push({ key: `end ${end.key}`, from, to: x.right, y: y(row), ...flow });
    });
    this.lines.show(lines, (line) => line.key, (object, line) => drawFlow(object, line, scale));
    this.rows.show(ends.map((end, row) => ({ end, row })), ({ end }) => end.key, (object, { end, row }) => {
      place(object.frame, x.right, y(row) - BOX / 2, width - x.right - 1, BOX);
      attribute(object.frame, "class", `guest${end.connected === false ? " off" : ""}`);
      const name = end.key === "others" ? `${hidden} more` : end.name;
      move(object.name, x.right + 8, y(row) + 4, shortened(name, x.narrow ? 15 : 17));
      move(object.rate, width - 9, y(row) + 4, x.narrow ? "" : state(end));
      const named = PLACES[end.path];
      object.place.hide(!named || end.key === "others");
      if (named) object.place.show(x.nicRight, y(row), named(end));
    });
  }
}

const both = (rates) => rates.txBits + rates.rxBits;

/** Rate of a NIC's uplink in both directions. */
const wireRate = ({ uplinkRates: rates }) => rates ? both(rates) : 0;

/** The rate of a guest; of one that is not there, that. */
function state(end) {
  if (end.connected === false) return "no guest";
  return both(end.rates) > 0 ? bits(both(end.rates)) : "idle";
}

function shortened(name, most) {
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}

/** The guests to draw, by path, and the number of those that one stands for. */
function drawn(ends) {
  const order = (end) => ORDER[end.path || "port"] ?? 2;
  const sorted = [...ends].sort((a, b) => order(a) - order(b));
  if (sorted.length <= GUESTS_MAX + 1) return { ends: sorted, hidden: 0 };
  // The busiest are drawn, each path in its order.
  const busiest = new Set([...sorted].sort((a, b) => both(b.rates) - both(a.rates)).slice(0, GUESTS_MAX));
  const others = sorted.filter((end) => !busiest.has(end));
  const sum = (name) => others.reduce((all, end) => all + end.rates[name], 0);
  const rates = Object.fromEntries(["txBits", "rxBits", "wireBps", "localBoth"].map((name) => [name, sum(name)]));
  const path = sorted.some((end) => end.path === "synthetic") ? "synthetic" : "vf";
  const rest = { key: "others", name: "", path, rates };
  return { ends: [...sorted.filter((end) => busiest.has(end)), rest], hidden: others.length };
}

function box(name) {
  return svg("rect", { class: name, rx: 8 });
}

function place(rect, x, y, width, height) {
  for (const [name, value] of Object.entries({ x, y, width, height })) attribute(rect, name, value.toFixed(1));
}

function label(name, anchor) {
  return svg("text", { class: name, "text-anchor": anchor });
}

function move(node, x, y, words) {
  attribute(node, "x", x.toFixed(1));
  attribute(node, "y", y.toFixed(1));
  text(node, words);
}

/** A small box on an edge of the NIC: uplink, PF, VF or queue. */
function cell() {
  const frame = svg("rect", { class: "cell", rx: 4, height: 20 });
  const words = label("small", "middle");
  return {
    node: svg("g", {}, frame, words),
    show(x, y, name) {
      const width = 14 + 6.4 * name.length;
      place(frame, x - width / 2, y - 10, width, 20);
      move(words, x, y + 4, name);
    },
    hide(hidden) {
      attribute(this.node, "visibility", hidden ? "hidden" : null);
    },
  };
}

/** Draws a flow: a thin connection, and for each kind of traffic a line of its width. */
function drawFlow({ parts: [link, ns, ew] }, flow, scale) {
  const width = (rate) => rate > 0 ? Math.max(1.5, (LINE_MAX * rate) / scale) : 0;
  const [north, east] = [width(flow.ns), width(flow.ew)];
  const path = (y) => `M ${flow.from.toFixed(1)} ${y.toFixed(1)} H ${flow.to.toFixed(1)}`;
  attribute(link, "d", path(flow.y));
  const whole = north + east;
  for (const [part, size, y] of [[ns, north, flow.y - whole / 2 + north / 2], [ew, east, flow.y + whole / 2 - east / 2]]) {
    attribute(part, "visibility", size > 0 ? null : "hidden");
    attribute(part, "d", path(y));
    attribute(part, "stroke-width", size.toFixed(1));
  }
}

const recent = [];

/** A round number above the highest rates of the last minute. */
function scaleOf(nics) {
  const highest = nics.map((nic) => Math.max(wireRate(nic), ...nic.ends.map((end) => both(end.rates))));
  recent.push(Math.max(0, ...highest));
  if (recent.length > MEMORY) recent.shift();
  return ceiling(Math.max(...recent), 1e6);
}

const parent = at("pictures");
const pictures = new Keyed(parent, () => new Picture());
let last = null;
/** Width of the pictures in px, as last observed: to ask for it would cost a layout each time. */
let width = 0;
new ResizeObserver(([entry]) => {
  width = Math.round(entry.contentRect.width);
  if (last) draw(last);
}).observe(parent);

/** Shows the houses of a view. */
export function show({ nics }) {
  last = { nics: nics.slice(0, NICS_MAX), scale: scaleOf(nics) };
  draw(last);
}

function draw({ nics, scale }) {
  if (width === 0) return;
  pictures.show(nics, (nic) => nic.name, (picture, nic) => picture.show(nic, width, scale));
}
