// Charts of the last hour: the daemon's history, and what this page has seen since. uPlot draws them.

import { at, html, text } from "./dom.js";
import { bits, frames, percent } from "./format.js";
import { marked } from "./events.js";
import { axisStyle, colour } from "./plot.js";

/** Most readings that are kept: an hour of one a second. */
const READINGS_MAX = 3600;
const RANGES = [["1 min", 60], ["5 min", 300], ["15 min", 900], ["1 h", 3600]];
const HEIGHT = 160;
/** Time between two drawings, in ms. */
const DRAW_MS = 100;
/** Least distance of two marks, in pixels: closer ones look like one. */
const MARK_PX = 3;

const times = [];
const charts = [];
let range = 300;
let zoomed = false;
/** The timer of the next drawing. */
let drawing = null;
/** `true` while a part of the charts is within the window. */
let isSeen = true;

class Chart {
  constructor(title, series, unit) {
    this.series = series;
    this.unit = unit;
    this.columns = series.map(() => []);
    this.readout = html("p", { class: "readout" });
    this.words = series.map((one) => {
      const words = html("span", { class: `key ${one.colour}` });
      this.readout.append(words);
      return words;
    });
    this.place = html("div", { class: "plot", role: "img", "aria-label": `${title} over time` });
    this.node = html("div", { class: "chart" }, html("h3", {}, title), this.readout, this.place);
  }

  /** Makes the plot, again after a change of colours. */
  build() {
    this.plot?.destroy();
    const axis = axisStyle();
    const lines = this.series.map((one) => ({
      label: one.name, stroke: colour(one.colour), width: 1.75, points: { show: false }, spanGaps: false,
    }));
    const options = {
      width: Math.max(200, this.place.clientWidth),
      height: HEIGHT,
      legend: { show: false },
      cursor: { sync: { key: "shunt" }, drag: { x: true, y: false }, points: { size: 6 } },
      scales: {
        x: { time: true, range: (_, least, most) => zoomed ? [least, most] : recent() },
        y: { range: (_, least, most) => [0, this.unit === percent ? 1 : Math.max(most * 1.1, 1)] },
      },
      axes: [
        { ...axis, space: 70, size: 28, values: "{HH}:{mm}:{ss}" },
        { ...axis, size: 74, values: (_, values) => values.map((value) => this.unit(value)) },
      ],
      series: [{}, ...lines],
      hooks: {
        setSelect: [(plot) => plot.select.width > 4 && (zoomed = true, showRanges())],
        setCursor: [(plot) => this.read(plot.cursor.idx)],
        draw: [(plot) => marks(plot)],
      },
    };
    this.plot = new uPlot(options, this.data(), this.place);
    this.plot.over.addEventListener("dblclick", () => follow(range));
    this.read(null);
  }

  data() {
    return [times, ...this.columns];
  }

  add(values) {
    this.columns.forEach((column, i) => {
      column.push(values[i] ?? null);
      if (column.length > READINGS_MAX) column.shift();
    });
  }

  draw() {
    if (zoomed) this.plot.setData(this.data(), false), this.plot.redraw();
    else this.plot.setData(this.data());
    if (this.plot.cursor.idx == null) this.read(null);
  }

  /** Shows the values at a reading; of the last one without. */
  read(index) {
    this.words.forEach((words, i) => {
      const value = this.columns[i][index ?? times.length - 1];
      text(words, `${this.series[i].name} ${value == null ? "-" : this.unit(value)}`);
    });
  }
}

/** The range up to now, in seconds since 1970; shorter while there are few readings. */
function recent() {
  const now = times.at(-1) ?? Date.now() / 1000;
  const known = now - (times[0] ?? now);
  return [now - Math.min(range, Math.max(known, RANGES[0][1])), now];
}

/** Vertical lines at events. */
function marks(plot) {
  const { left, top, width, height } = plot.bbox;
  const context = plot.ctx;
  context.save();
  context.strokeStyle = colour("mark");
  context.setLineDash([4, 4]);
  context.beginPath();
  let last = -Infinity;
  for (const time of marked()) {
    const x = plot.valToPos(time, "x", true);
    if (x < left || x > left + width || x - last < MARK_PX) continue;
    last = x;
    context.moveTo(x, top);
    context.lineTo(x, top + height);
  }
  context.stroke();
  context.restore();
}

/** Follows the present again, with this range in seconds. */
function follow(seconds) {
  range = seconds;
  zoomed = false;
  showRanges();
  for (const chart of charts) chart.draw();
}

const buttons = RANGES.map(([name, seconds]) => {
  const button = html("button", { type: "button" }, name);
  button.addEventListener("click", () => follow(seconds));
  at("ranges").append(button);
  return { button, seconds };
});

function showRanges() {
  for (const { button, seconds } of buttons) {
    button.setAttribute("aria-pressed", String(!zoomed && seconds === range));
  }
}

function make() {
  const split = [{ name: "N/S", colour: "ns" }, { name: "E/W", colour: "ew" }];
  charts.push(
    new Chart("Throughput", split, bits),
    new Chart("Frames", split, frames),
    new Chart("Lost", [{ name: "lost", colour: "bad" }], frames),
    new Chart("Lanes busy", [{ name: "all lanes", colour: "lane" }], percent),
  );
  at("charts").append(...charts.map((chart) => chart.node));
  for (const chart of charts) chart.build();
  showRanges();
  window.addEventListener("themechange", () => charts.forEach((chart) => chart.build()));
  new ResizeObserver(() => {
    for (const chart of charts) {
      const width = chart.place.clientWidth;
      if (width > 0 && width !== chart.plot.width) chart.plot.setSize({ width, height: HEIGHT });
    }
  }).observe(at("charts"));
  new IntersectionObserver(([entry]) => {
    isSeen = entry.isIntersecting;
    if (isSeen) draw();
  }).observe(at("charts"));
}

/**
 * Adds values at a time in seconds since 1970: one list for each chart. If the clock was set back,
 * the readings from that time on are forgotten.
 */
function add(seconds, values) {
  while (times.at(-1) >= seconds) {
    times.pop();
    for (const chart of charts) for (const column of chart.columns) column.pop();
  }
  times.push(seconds);
  if (times.length > READINGS_MAX) times.shift();
  charts.forEach((chart, i) => chart.add(values[i]));
}

/** Forgets all, and begins with the daemon's history. */
export function begin(readings) {
  if (charts.length === 0) make();
  times.length = 0;
  for (const chart of charts) for (const column of chart.columns) column.length = 0;
  for (let i = 1; i < readings.length; i += 1) {
    const [before, now] = [readings[i - 1], readings[i]];
    const seconds = (now.clock_us - before.clock_us) / 1e6;
    // A sum falls when a port is removed: the rate is unknown.
    const rate = (name, factor = 1) => now[name] < before[name] ? null : (factor * (now[name] - before[name])) / seconds;
    add(now.time_ms / 1000, [
      [rate("wire_bytes", 8), rate("local_bytes", 8)],
      [rate("wire_frames"), rate("local_frames")],
      [rate("dropped")],
      [rate("busy_cycles") / Math.max(1, now.cycles_per_s)],
    ]);
  }
  follow(range);
}

/** Adds a view, and draws soon if the charts are seen; a fast recording has many views a second. */
export function show({ totals, lanes }, seconds) {
  const own = lanes.filter((lane) => !lane.apart);
  const busy = own.reduce((sum, lane) => sum + lane.busy, 0) / Math.max(1, own.length);
  add(seconds, [
    [totals.wireBps, totals.localBps],
    [totals.wirePps, totals.localPps],
    [totals.lost],
    [busy],
  ]);
  drawing ??= setTimeout(draw, DRAW_MS);
}

function draw() {
  drawing = null;
  if (isSeen && !document.hidden) charts.forEach((chart) => chart.draw());
}
