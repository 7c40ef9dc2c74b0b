// The lab's page: one or two runs of `shunt lab`, and the papers' figures beside them.
//
// Runs are files that stay in the browser.

import { at, attribute, html, text } from "./dom.js";
import { digits } from "./format.js";
import { LinePlot } from "./plot.js";
import { published } from "./published.js";
import { cells, compare, LESS_IS_BETTER, parse } from "./results.js";
import { Table } from "./table.js";

const COLOURS = { vf: "ns", vhost: "ew", synthetic: "ew", virtio: "muted", vmq: "lane" };
/** Sources of figures: name and line. */
const SOURCES = { a: { name: "A" }, b: { name: "B", dash: "dashed" }, paper: { name: "published", dash: "dotted" } };
const PATHS = ["vf", "vmq", "vhost", "synthetic", "virtio"];
/** Facts of a machine that make two runs those of different machines. */
const SAME = ["architecture", "cpu_model", "cores", "hypervisor", "kernel", "rustc"];
/** Relative difference of clocks that counts as another clock. */
const CLOCK = 0.01;
const REFERENCE = "Published figures are those of other machines and NICs: a reference, no target, so there is no ratio to them.";
const FORWARDED = "nfv-2017 measured virtual machines with DPDK's testpmd on a 40 Gbit/s card; sums over the guests' transmit side, as ours.";

/** Runs and their cells, by source. */
const runs = { a: null, b: null };
const found = { a: [], b: [], paper: [] };
let headlines = [];

const plot = new LinePlot("Measurement", "taller");
at("plots").append(plot.node);

/** A figure with three digits or more, such as `> 12.3 (11.9-12.8, 4 slots)`. */
function figureWords(figure) {
  if (!figure) return "-";
  const { value, least, most, slots, bound } = figure;
  const ends = [];
  if (least !== null && (slots ?? 2) > 1) ends.push(`${digits(least)}-${digits(most)}`);
  if (slots > 1) ends.push(`${slots} slots`);
  return `${bound ? "> " : ""}${digits(value)}${ends.length > 0 ? ` (${ends.join(", ")})` : ""}`;
}

const option = (value, words) => html("option", { value }, words);

/** Fills a choice, and keeps what was chosen if it is still there. */
function offer(id, entries) {
  const node = at(id);
  const before = node.value;
  node.replaceChildren(...entries.map(([value, words]) => option(value, words)));
  if (entries.some(([value]) => String(value) === before)) node.value = before;
}

const inOrder = (values) => [...new Set(values)].sort((x, y) => typeof x === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true }));

/** Cells of all sources that a function accepts, by source. */
function chosen(accepts) {
  return Object.fromEntries(Object.entries(found).map(([source, all]) => [source, all.filter(accepts)]));
}

/** Groups of all cells; those of runs first. */
function groups() {
  const all = new Map();
  for (const source of ["a", "b", "paper"]) {
    for (const cell of found[source]) if (!all.has(cell.id)) all.set(cell.id, cell);
  }
  return all;
}

/** Offers what there is, then shows what is chosen. */
function showAll() {
  showRuns();
  offer("group", [...groups().values()].map((cell) => [cell.id, cell.title]));
  showGroup();
}

function showGroup() {
  const group = groups().get(at("group").value);
  if (!group) return;
  const { form } = group;
  text(at("pick-name"), form.pick.name);
  const its = [...found.a, ...found.b, ...found.paper].filter((cell) => cell.id === group.id);
  offer("pick", inOrder(its.map((cell) => cell.pick)).map((pick) => [pick, form.pick.words(pick)]));
  const has = (name) => its.some((cell) => cell.figures[name]);
  offer("metric", Object.entries(form.figures).filter(([name]) => has(name)));
  showMeasured();
}

/** The published figure for a cell: the run's own, or that of the tables. */
function paperOf(row, name) {
  const own = row.a?.published?.[name] ?? row.b?.published?.[name];
  return own != null ? { value: own, least: null, most: null, slots: null, bound: false } : row.paper?.figures[name];
}

function showMeasured() {
  const group = groups().get(at("group").value);
  const { form } = group;
  const [pick, name] = [at("pick").value, at("metric").value];
  const its = chosen((cell) => cell.id === group.id && String(cell.pick) === pick);
  const all = [...its.a, ...its.b, ...its.paper];
  const xs = inOrder(all.map((cell) => cell.x));
  const paths = inOrder(all.map((cell) => cell.path)).sort((x, y) => rank(x) - rank(y));
  const isRun = its.a.length + its.b.length > 0;
  const rows = xs.flatMap((x) => paths.map((path) => {
    const of = (source) => its[source].find((cell) => cell.x === x && cell.path === path);
    return { x, path, a: of("a"), b: of("b"), paper: of("paper") };
  })).filter((row) => row.a || row.b || row.paper);
  showPlot(form, name, xs, paths, rows);
  // Beside a run, only what it has.
  const shown = rows.filter((row) => !isRun || row.a || row.b);
  showRows(form, name, shown);
  showApart(group, shown, name);
  text(at("question"), runs.a?.experiment?.question ?? "");
  const unit = form.figures[name];
  attribute(at("plots"), "data-shown", `${group.id}|${pick}|${name}|${unit}`);
}

const rank = (path) => {
  const found = PATHS.indexOf(path.split(",")[0]);
  return found < 0 ? PATHS.length : found;
};

function showPlot(form, name, xs, paths, rows) {
  const value = (row, source) => source === "paper" ? paperOf(row, name)?.value : row[source]?.figures[name]?.value;
  const lines = paths.flatMap((path) => Object.entries(SOURCES).map(([source, { name: of, dash }]) => ({
    name: runs.a === null && source === "paper" ? path : `${path}, ${of}`,
    colour: COLOURS[path.split(",")[0]] ?? "ink", dash, points: true, spans: true,
    values: xs.map((x) => {
      const row = rows.find((row) => row.x === x && row.path === path);
      return row ? value(row, source) ?? null : null;
    }),
  }))).filter((line) => line.values.some((one) => one !== null));
  const unit = form.figures[name];
  plot.show({
    x: xs.map((_, i) => i), ticks: xs.map((x, i) => [i, form.x.words(x)]), lines, here: xs.length - 1,
    unit: (one) => `${digits(one)}`,
    words: `${unit} over ${form.x.name}. The table below has the figures.`,
  });
  text(plot.node.querySelector("h3"), `${unit} over ${form.x.name}; values of the last point, or under the pointer`);
}

function ratioWords(row, name) {
  const { ratio, least, most, at: band, why } = compare(row.a, row.b, name);
  if (ratio === undefined) return why;
  const ends = least === null ? "" : ` (${least.toFixed(2)}-${most.toFixed(2)})`;
  return `${ratio.toFixed(2)}${ends}${band && band !== "unknown" ? `, CPUs ${band}` : ""}`;
}

function showRows(form, name, rows) {
  const unit = form.figures[name];
  const both = runs.a !== null && runs.b !== null;
  const columns = [
    { title: form.x.name[0].toUpperCase() + form.x.name.slice(1), value: (row) => form.x.words(row.x) },
    { title: "Path", value: (row) => label(row.path) },
    ...["a", "b"].filter((source) => runs[source] !== null).map((source) => ({
      title: `${SOURCES[source].name}, ${unit}`, number: true, value: (row) => figureWords(row[source]?.figures[name]),
      sort: (row) => row[source]?.figures[name]?.value ?? 0,
    })),
    ...(both ? [{ title: `B / A${LESS_IS_BETTER.has(name) ? ", less is better" : ""}`, number: true, value: (row) => ratioWords(row, name) }] : []),
    ...(runs.a || runs.b ? [{ title: "Bottleneck", value: (row) => limits(row) }] : []),
    { title: "Published", number: true, value: (row) => figureWords(paperOf(row, name)) },
  ];
  const table = new Table("result-table", `${unit} by ${form.x.name} and path`, columns, (row) => `${row.x} ${row.path}`);
  table.show(rows);
}

function label(path) {
  return (cell) => {
    const node = cell.firstElementChild ?? cell.appendChild(html("span"));
    attribute(node, "class", `path ${{ ns: "vf", ew: "synthetic", lane: "vmq" }[COLOURS[path.split(",")[0]]] ?? "port"}`);
    text(node, path);
  };
}

function limits(row) {
  const all = ["a", "b"].map((source) => row[source]?.limit).filter((limit) => limit !== undefined);
  return [...new Set(all)].join(" / ") || "-";
}

/** Says what must not be compared. */
function showApart(group, rows, name) {
  const words = [];
  const papers = rows.some((row) => paperOf(row, name));
  if (papers) words.push(REFERENCE);
  if (papers && group.id.startsWith("forward")) words.push(FORWARDED);
  const differs = [...new Set([runs.a, runs.b].flatMap((run) => run?.experiment?.differs ?? []))];
  if (papers) words.push(...differs.map((one) => `Differs from the paper: ${one}`));
  const disturbed = ["a", "b"].flatMap((source) => rows.filter((row) => row[source] && !row[source].steady));
  if (disturbed.length > 0) words.push(`${disturbed.length} configurations have no steady slot: frames were lost, the CPUs moved, or others used them.`);
  if (rows.some((row) => row.a?.figures[name]?.bound || row.b?.figures[name]?.bound)) {
    words.push("> is a lower bound: the generator was the bottleneck, so there is no ratio.");
  }
  at("apart").replaceChildren(...words.map((one) => html("li", {}, one)));
  text(at("method"), runs.a || runs.b
    ? "Of a configuration measured several times the figure is the median by Mpps (of two, the lower) of the steady slots, with the least and the most. Ends of a ratio are those of the extreme slots."
    : "Open a run to see it beside these figures.");
}

/** Facts of a run for its column. */
function facts(run) {
  const machine = Object.entries(run.machine).filter(([, value]) => value === null || typeof value !== "object");
  return new Map([
    ["file", run.file],
    ["command", run.command],
    ["started", run.started.utc],
    ["version", run.version],
    ["experiment", run.experiment ? `${run.experiment.name}: ${run.experiment.title}` : "-"],
    ...machine.filter(([name]) => name !== "version").map(([name, value]) => [name, String(value ?? "unknown")]),
    ...(run.ended_early ? [["ended early", run.ended_early]] : []),
    ["notes", (run.notes ?? []).join(" ") || "-"],
  ]);
}

function showRuns() {
  const shown = ["a", "b"].filter((source) => runs[source] !== null);
  at("facts").hidden = shown.length === 0;
  at("close").disabled = shown.length === 0;
  const all = Object.fromEntries(shown.map((source) => [source, facts(runs[source])]));
  const names = [...new Set(Object.values(all).flatMap((one) => [...one.keys()]))];
  const columns = shown.map((source) => ({ title: `Run ${SOURCES[source].name}`, class: "why", value: (name) => all[source].get(name) ?? "-" }));
  const table = new Table("run-table", "Facts of the runs", [{ title: "Fact", value: (name) => name }, ...columns], (name) => name);
  table.show(names);
  at("caveats").replaceChildren(...caveats().map((one) => html("li", {}, one)));
}

/** Reasons for which two runs differ in more than the program. */
function caveats() {
  const { a, b } = runs;
  const words = [];
  for (const [name, run] of [["A", a], ["B", b]]) {
    if (run?.ended_early) words.push(`Run ${name} ended early: ${run.ended_early}`);
  }
  if (a === null || b === null) return words;
  const differ = SAME.filter((name) => (a.machine[name] ?? null) !== (b.machine[name] ?? null));
  const [one, other] = [a.machine.tsc_mhz, b.machine.tsc_mhz];
  if (one && other && Math.abs(other / one - 1) > CLOCK) differ.push("tsc_mhz");
  if (differ.length > 0) {
    words.push(`The runs are of different machines or compilers (${differ.join(", ")}): a ratio is theirs as much as the program's.`);
  }
  words.push("The runs were not interleaved: a machine drifts between two runs. Where a difference matters, let shunt lab compare alternate the two programs.");
  if ((a.schema ?? 1) !== (b.schema ?? 1)) {
    words.push("One run is of schema 1, whose cycles count dropped frames too: cycles are not compared.");
  }
  return words;
}

function readCells(run) {
  try {
    return cells(run).map((cell) => ({ ...cell, schema: run.schema ?? 1 }));
  } catch (error) {
    throw new Error(`cannot be read: ${error.message}; open the results.json of shunt lab`);
  }
}

/** Opens a file as a run; tells what is wrong with it. */
async function open(source, input) {
  const [file] = input.files;
  if (!file) return;
  text(at("problem"), "");
  try {
    const run = parse(await file.text());
    const its = readCells(run);
    runs[source] = { ...run, file: file.name };
    found[source] = its;
  } catch (error) {
    input.value = "";
    text(at("problem"), `${file.name} ${error.message}`);
  }
  showAll();
}

function showHeadlines() {
  const columns = [
    { title: "Paper", value: (row) => row.paper },
    { title: "Experiment", class: "why", value: (row) => row.experiment },
    { title: "Condition", class: "why", value: (row) => row.condition },
    { title: "Figure", class: "why", value: (row) => row.metric },
    { title: "Value", number: true, value: (row) => `${row.value} ${row.unit}` },
    { title: "Note", class: "why", value: (row) => row.note },
  ];
  const table = new Table("headline-table", "Main results of five papers", columns, (row) => row.number);
  table.show(headlines.map((row, number) => ({ ...row, number: String(number) })));
}

for (const source of ["a", "b"]) {
  const input = at(`file-${source}`);
  input.addEventListener("change", () => open(source, input));
}
at("close").addEventListener("click", () => {
  for (const source of ["a", "b"]) {
    runs[source] = null;
    found[source] = [];
    at(`file-${source}`).value = "";
  }
  text(at("problem"), "");
  showAll();
});
at("group").addEventListener("change", showGroup);
at("pick").addEventListener("change", showMeasured);
at("metric").addEventListener("change", showMeasured);

try {
  const papers = await published();
  found.paper = papers.cells;
  headlines = papers.headlines;
} catch (error) {
  text(at("problem"), `The published figures cannot be read: ${error.message}`);
}
at("figures").hidden = false;
showHeadlines();
showAll();
