// Line plots of a page: lines over one quantity, with marks. uPlot draws them.

import { attribute, html, text } from "./dom.js";

/** Height of a plot, in px; the style sheet reserves it. */
const HEIGHT = { tall: 250, taller: 340 };
const FONT = "12px system-ui, sans-serif";

/** The colour of a name of the style sheet, as the browser computes it. */
export function colour(name) {
  const probe = html("span", { class: `probe ${name}` });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** Options of an axis in the colours of the page. */
export function axisStyle() {
  const grid = { stroke: colour("line"), width: 1 };
  return { stroke: colour("muted"), grid, ticks: { ...grid, size: 4 }, font: FONT };
}

/**
 * A plot of lines. A figure is { x, ticks, lines, unit, here, marks, dots, words }: `x` the values,
 * `ticks` [value, text] below the plot, `lines` of { name, colour, dash, points, spans, values } (`spans`:
 * over missing values), `unit` of a value as text, `here` the index whose values are shown without a cursor, `marks` of { x, words }
 * dashed lines, `dots` of { x, y, colour }, `words` a summary for readers who see no picture.
 */
export class LinePlot {
  #plot = null;
  #figure = null;
  #form = "";

  constructor(title, size = "tall") {
    this.height = HEIGHT[size];
    this.readout = html("p", { class: "readout" });
    this.place = html("div", { class: `plot ${size}`, role: "img", "aria-label": title });
    this.node = html("div", { class: "chart" }, html("h3", {}, title), this.readout, this.place);
    this.title = title;
    window.addEventListener("themechange", () => this.#figure && this.#build());
    new ResizeObserver(() => {
      const width = this.place.clientWidth;
      if (this.#plot && width > 0 && width !== this.#plot.width) this.#plot.setSize({ width, height: this.height });
    }).observe(this.place);
  }

  /** Shows a figure; the plot is kept if only values differ. */
  show(figure) {
    this.#figure = figure;
    attribute(this.place, "aria-label", `${this.title}. ${figure.words}`);
    const form = JSON.stringify(figure.lines.map(({ name, colour, dash, points }) => [name, colour, dash, points]));
    if (form !== this.#form) {
      this.#form = form;
      this.readout.replaceChildren(...figure.lines.map((line) => html("span", { class: `key ${line.colour} ${line.dash ?? ""}` })));
      this.#build();
    } else {
      this.#plot.setData(this.#data());
    }
    this.#read(this.#plot.cursor.idx);
  }

  #data() {
    return [this.#figure.x, ...this.#figure.lines.map((line) => line.values)];
  }

  #build() {
    this.#plot?.destroy();
    const axis = axisStyle();
    const lines = this.#figure.lines.map((line) => ({
      label: line.name, stroke: colour(line.colour), width: 2.25, dash: DASHES[line.dash], spanGaps: line.spans ?? false,
      points: { show: line.points ?? false, size: 7, fill: colour(line.colour) },
    }));
    const few = () => {
      const { ticks } = this.#figure;
      const room = Math.max(2, Math.floor(this.place.clientWidth / 44));
      const step = Math.ceil(ticks.length / room);
      return ticks.filter((_, i) => i % step === 0);
    };
    const options = {
      width: Math.max(200, this.place.clientWidth),
      height: this.height,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { size: 8 } },
      scales: {
        x: { time: false, range: () => this.#ends() },
        y: { range: (_, __, most) => [0, Math.max(most * 1.12, 1e-9)] },
      },
      axes: [
        {
          ...axis, size: 30,
          splits: () => few().map(([value]) => value),
          values: () => few().map(([, words]) => words),
        },
        { ...axis, size: 46, values: (_, values) => values.map(short) },
      ],
      series: [{}, ...lines],
      hooks: {
        setCursor: [(plot) => this.#read(plot.cursor.idx)],
        draw: [(plot) => this.#draw(plot)],
      },
    };
    this.#plot = new uPlot(options, this.#data(), this.place);
  }

  /** The ends of x, with room for the first and last point. */
  #ends() {
    const { x } = this.#figure;
    const room = x.length > 1 ? (x.at(-1) - x[0]) * 0.03 : 1;
    return [x[0] - room, x.at(-1) + room];
  }

  /** Shows the values at an index, or at that of the figure. */
  #read(index) {
    const at = index ?? this.#figure.here;
    this.#figure.lines.forEach((line, i) => {
      const value = line.values[at];
      text(this.readout.children[i], `${line.name} ${value == null ? "-" : this.#figure.unit(value)}`);
    });
  }

  #draw(plot) {
    const { left, top, width, height } = plot.bbox;
    const context = plot.ctx;
    const scale = devicePixelRatio;
    context.save();
    context.lineWidth = scale;
    context.font = `${12 * scale}px system-ui, sans-serif`;
    (this.#figure.marks ?? []).forEach(({ x, words, solid }, i) => {
      const at = plot.valToPos(x, "x", true);
      if (at < left || at > left + width) return;
      context.strokeStyle = colour(solid ? "ink" : "mark");
      context.setLineDash(solid ? [] : [5 * scale, 4 * scale]);
      context.beginPath();
      context.moveTo(at, top);
      context.lineTo(at, top + height);
      context.stroke();
      if (!words) return;
      // Words of several marks stand below each other, on the ground of the card.
      const room = context.measureText(words).width + 12 * scale;
      const begin = at + room < left + width ? at + 3 * scale : at - room - 3 * scale;
      const line = top + (2 + 20 * (i % 4)) * scale;
      context.fillStyle = colour("card");
      context.fillRect(begin, line, room, 18 * scale);
      context.fillStyle = colour("ink");
      context.textAlign = "left";
      context.fillText(words, begin + 6 * scale, line + 13 * scale);
    });
    context.setLineDash([]);
    for (const dot of this.#figure.dots ?? []) {
      context.beginPath();
      context.arc(plot.valToPos(dot.x, "x", true), plot.valToPos(dot.y, "y", true), 6 * scale, 0, 2 * Math.PI);
      context.fillStyle = colour("card");
      context.fill();
      context.lineWidth = 3 * scale;
      context.strokeStyle = colour(dot.colour);
      context.stroke();
    }
    context.restore();
  }
}

/** A number of an axis, without needless digits. */
const short = (value) => String(Number(value.toPrecision(3)));

const DASHES = { dashed: [9, 5], dotted: [2, 4] };
