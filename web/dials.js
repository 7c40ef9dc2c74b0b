// The totals as dials: a large figure, and an arc whose end is a round number above the last minute.

import { at, attribute, html, svg, text } from "./dom.js";
import { bits, ceiling, count, frames, percent, scaled } from "./format.js";

const MEMORY = 60;
/** Arc of 240 degrees around (100, 92) with radius 78. */
const ARC = "M 32.45 131 A 78 78 0 1 1 167.55 131";

class Dial {
  #recent = [];

  constructor(id, title, parts) {
    this.base = svg("path", { d: ARC, class: "track" });
    this.arcs = parts.map((part) => svg("path", { d: ARC, class: `arc ${part}`, pathLength: 100 }));
    this.value = svg("text", { x: 100, y: 98, class: "figure", id: `dial-${id}` });
    this.unit = svg("text", { x: 100, y: 122, class: "unit", id: `dial-${id}-unit` });
    this.least = svg("text", { x: 34, y: 149, class: "scale" }, "0");
    this.most = svg("text", { x: 166, y: 149, class: "scale" });
    const name = `dial-${id}-title`;
    const picture = svg(
      "svg", { viewBox: "0 0 200 154", role: "img", "aria-labelledby": `${name} dial-${id} dial-${id}-unit` },
      this.base, ...this.arcs, this.value, this.unit, this.least, this.most,
    );
    this.detail = html("p", { class: "detail", id: `dial-${id}-detail` });
    this.node = html("div", { class: "card dial" }, html("h2", { id: name }, title), picture, this.detail);
  }

  /** Arcs one behind the other, as shares of the scale. */
  arc(shares) {
    let begin = 0;
    this.arcs.forEach((arc, i) => {
      const length = Math.max(0, Math.min(100 - begin, 100 * shares[i]));
      attribute(arc, "stroke-dasharray", `0 ${begin.toFixed(2)} ${length.toFixed(2)} 200`);
      attribute(arc, "visibility", length < 0.05 ? "hidden" : null);
      begin += length;
    });
  }

  /** The scale for values like the last ones. */
  scale(value, least) {
    this.#recent.push(value);
    if (this.#recent.length > MEMORY) this.#recent.shift();
    return ceiling(Math.max(...this.#recent), least);
  }

  /** A rate of two parts, in a unit such as `bps`. */
  rate(wire, local, unit, least, words) {
    const [number, prefix] = scaled(wire + local);
    const scale = this.scale(wire + local, least);
    text(this.value, number);
    text(this.unit, prefix + unit);
    const [end, endPrefix] = scaled(scale);
    text(this.most, Number(end) + endPrefix);
    this.arc([wire / scale, local / scale]);
    text(this.detail, `N/S ${words(wire)} · E/W ${words(local)}`);
  }
}

const dials = {
  bits: new Dial("bits", "Throughput", ["ns", "ew"]),
  frames: new Dial("frames", "Frames", ["ns", "ew"]),
  lost: new Dial("lost", "Lost", ["bad"]),
  lanes: new Dial("lanes", "Lanes busy", ["lane"]),
};
at("dials").append(...Object.values(dials).map((dial) => dial.node));

/** Shows the totals of a view. */
export function show({ totals, lanes }) {
  dials.bits.rate(totals.wireBps, totals.localBps, "bps", 1e6, bits);
  dials.frames.rate(totals.wirePps, totals.localPps, "pps", 1e3, frames);
  showLost(dials.lost, totals);
  showLanes(dials.lanes, lanes);
}

/** The arc is logarithmic: from one frame in a million to all. */
function showLost(dial, { lost, sent, dropped }) {
  const [number, prefix] = scaled(lost);
  const share = lost > 0 ? Math.min(1, lost / Math.max(sent, lost)) : 0;
  text(dial.value, number);
  text(dial.unit, `${prefix}pps`);
  text(dial.least, "1 ppm");
  text(dial.most, "all");
  dial.arc([share > 0 ? Math.max(0.02, 1 + Math.log10(share) / 6) : 0]);
  const part = share === 0 ? "none now" : share < 0.001 ? `${(share * 1e6).toFixed(0)} ppm` : percent(share);
  text(dial.detail, `${part} · ${count(dropped)} since the start`);
}

function showLanes(dial, all) {
  const lanes = all.filter((lane) => !lane.apart);
  const busy = lanes.reduce((sum, lane) => sum + lane.busy, 0) / Math.max(1, lanes.length);
  const fps = lanes.reduce((sum, lane) => sum + lane.fps, 0);
  const cost = lanes.reduce((sum, lane) => sum + lane.cost * lane.fps, 0) / Math.max(1, fps);
  text(dial.value, percent(busy).replace(" %", ""));
  text(dial.unit, "%");
  text(dial.most, "100");
  dial.arc([busy]);
  const number = lanes.length === 1 ? "1 lane" : `${lanes.length} lanes`;
  text(dial.detail, `${number} · ${cost.toFixed(0)} cycles/frame`);
}
