// Tables of adapters, lanes, lane time by port, and drops.

import { at, attribute, html, svg, text } from "./dom.js";
import { bits, count, frames, percent } from "./format.js";
import { bar, sentence, Table } from "./table.js";

const NO_GUEST = { absent: "no guest", connected: "no driver", driver: "driver loaded", running: "running" };
let explained = new Map();

/** Takes the explanations of reasons. */
export function explain(reasons) {
  explained = new Map();
  for (const reason of reasons) {
    for (const name of [reason.name, ...reason.counters]) {
      if (!explained.has(name)) explained.set(name, reason);
    }
  }
}

/** A path with the number of its VF or queue. */
function place(end) {
  if (end.kind !== "adapter") return "-";
  return `${end.path} ${end.vf ?? end.queue ?? ""}`.trim();
}

/** A path as a label with its colour. */
function pathLabel(end) {
  return (cell) => {
    const label = cell.firstElementChild ?? cell.appendChild(html("span"));
    attribute(label, "class", `path ${end.path || "port"}`);
    text(label, place(end));
  };
}

/** The reason for a path, with its meaning as the title. */
function why(end) {
  if (end.kind !== "adapter") return "";
  if (end.reason === "Supported") return end.wanted === "auto" ? "by traffic" : "as wanted";
  const meaning = explained.get(end.reason)?.meaning;
  return meaning ? `${end.reason}: ${meaning}` : end.reason;
}

const adapters = new Table(
  "adapter-table", "Adapters: path in force, rates, drops",
  [
    { title: "Adapter", value: (end) => end.name, sort: (end) => end.name },
    { title: "NIC", value: (end) => end.nic, sort: (end) => end.nic },
    { title: "Path", value: pathLabel, sort: place },
    { title: "Why", value: why, class: "why" },
    { title: "Guest", value: (end) => end.kind === "adapter" ? guest(end) : "-" },
    { title: "Tx", value: (end) => bits(end.rates?.txBits ?? 0), sort: (end) => end.rates?.txBits ?? 0, number: true },
    { title: "Tx frames", value: (end) => frames(end.rates?.tx ?? 0), sort: (end) => end.rates?.tx ?? 0, number: true },
    { title: "Rx", value: (end) => bits(end.rates?.rxBits ?? 0), sort: (end) => end.rates?.rxBits ?? 0, number: true },
    { title: "Rx frames", value: (end) => frames(end.rates?.rx ?? 0), sort: (end) => end.rates?.rx ?? 0, number: true },
    { title: "N/S", value: wireShare, number: true },
    { title: "Backlog", value: (end) => percent(end.rates?.backlog ?? 0), sort: (end) => end.rates?.backlog ?? 0, number: true },
    { title: "No buffer", value: (end) => percent(end.rates?.noBuffer ?? 0), sort: (end) => end.rates?.noBuffer ?? 0, number: true },
    { title: "Lost", value: (end) => frames(end.rates?.lost ?? 0), sort: (end) => end.rates?.lost ?? 0, number: true },
    { title: "Dropped", value: dropped, sort: (end) => end.rates?.dropped ?? 0, number: true },
    { title: "Rings", value: (end) => String(end.rates?.port.rings_attached ?? 0), number: true },
  ],
  (end) => end.key,
);

function guest(end) {
  if (end.device) return end.device.state;
  return (NO_GUEST[end.guest] ?? end.guest) + (end.link_up ? "" : ", link down");
}

function wireShare({ rates }) {
  const all = (rates?.txBits ?? 0) + (rates?.rxBits ?? 0);
  return all > 0 ? percent(Math.min(1, rates.wireBps / all)) : "-";
}

/** The count of drops, with the reason that is at work now. */
function dropped({ rates }) {
  return rates?.worst ? `${count(rates.dropped)} ${rates.worst}` : count(rates?.dropped ?? 0);
}

const lanes = new Table(
  "lane-table", "Lanes: time, cost of a frame",
  [
    { title: "Lane", value: (lane) => lane.apart ? lane.name : `lane ${lane.name}` },
    { title: "Time", class: "wide", value: (lane) => bar([{ share: lane.busy, name: "busy" }, { share: lane.idle, name: "polls" }]) },
    { title: "Busy", value: (lane) => percent(lane.busy), number: true },
    { title: "Polling", value: (lane) => percent(lane.idle), number: true },
    { title: "Asleep", value: (lane) => percent(lane.away), number: true },
    { title: "Frames", value: (lane) => frames(lane.fps), number: true },
    { title: "Burst", value: (lane) => lane.fps > 0 ? lane.burst.toFixed(1) : "-", number: true },
    { title: "Backlog", value: (lane) => percent(lane.backlog), number: true },
    { title: "Cycles/frame", value: (lane) => lane.fps > 0 ? lane.cost.toFixed(0) : "-", number: true },
    { title: "Of them, by stage", class: "why", value: stages },
    { title: "Sleeps/s", value: (lane) => count(lane.sleeps), number: true },
    { title: "Longest gap", value: (lane) => `${lane.gapMs.toFixed(1)} ms`, number: true },
  ],
  (lane) => lane.name,
);

function stages(lane) {
  const known = lane.stages.filter((stage) => stage.cost >= 0.5);
  return known.map(({ stage, cost }) => `${stage} ${cost.toFixed(0)}`).join(", ") || "-";
}

const shares = new Table(
  "share-table", "Time of all lanes by the port whose frames they forward",
  [
    { title: "Port", value: (one) => one.name },
    { title: "Of their busy time", class: "wide", value: (one) => bar([{ share: one.part, name: "busy" }]) },
    { title: "Part", value: (one) => percent(one.part), number: true },
    { title: "Of all lanes", value: (one) => percent(one.share), number: true },
    { title: "Cycles/frame", value: (one) => one.cost > 0 ? one.cost.toFixed(0) : "-", number: true },
  ],
  (one) => one.name,
);

const drops = new Table(
  "drop-table", "Drops and ring faults, with their causes and remedies",
  [
    { title: "Port", value: (one) => one.port },
    { title: "Reason", value: (one) => one.reason },
    { title: "Now", value: (one) => one.kind === "drop" ? frames(one.rate) : "-", number: true },
    { title: "Since the start", value: (one) => count(one.total), number: true },
    { title: "Meaning", class: "why", value: (one) => sentence(explained.get(one.reason)?.meaning ?? "") },
    { title: "Likely cause", class: "why", value: (one) => sentence(explained.get(one.reason)?.cause ?? "") },
    { title: "Remedy", class: "why", value: (one) => sentence(explained.get(one.reason)?.remedy ?? "") },
  ],
  (one) => `${one.port} ${one.kind} ${one.reason}`,
);

/** Most rows of drops and of lane time; those of least are left out. */
const ROWS_MAX = 50;
const filter = at("filter");
let shown = null;
filter.addEventListener("input", () => shown && showAdapters(shown));

function showAdapters({ ends }) {
  const words = filter.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
  const has = (end) => {
    const all = `${end.name} ${end.path} ${end.nic} ${end.reason}`.toLowerCase();
    return words.every((word) => all.includes(word));
  };
  adapters.show(words.length ? ends.filter(has) : ends);
}

/** Shows the tables of a view. */
export function show(view) {
  shown = view;
  showAdapters(view);
  lanes.show(view.lanes);
  const capacity = view.hertz * Math.max(1, view.lanes.filter((lane) => !lane.apart).length);
  const ports = [...view.ends, ...view.nics.map((nic) => ({ key: `${nic.name}/uplink`, rates: nic.uplinkRates }))];
  const counted = ports.filter((port) => port.rates?.port.tx_cycles > 0);
  const all = counted.reduce((sum, port) => sum + port.rates.cycles, 0);
  const used = counted.map(({ key, rates }) => ({
    name: key,
    part: rates.cycles / Math.max(1, all),
    share: rates.cycles / capacity,
    cost: rates.tx > 0 ? rates.cycles / rates.tx : 0,
    cycles: rates.port.tx_cycles,
  }));
  shares.show(used.sort((a, b) => b.cycles - a.cycles).slice(0, ROWS_MAX));
  drops.show(view.dropped.slice(0, ROWS_MAX));
  at("no-drops").hidden = view.dropped.length > 0;
  at("drop-table").parentElement.hidden = view.dropped.length === 0;
}
