// The planner's page: sliders ask the daemon, which answers with rates, curves and recommended paths.
//
// One request is on its way at most; while a slider moves, values between are skipped.

import { at, attribute, html, Keyed, text } from "./dom.js";
import { ask, TokenNeeded } from "./feed.js";
import { digits, percent } from "./format.js";
import { askForToken, onToken, showFigures } from "./login.js";
import { LinePlot } from "./plot.js";
import { bar, Table } from "./table.js";

const SLIDERS = ["length", "chains", "frame", "cores", "guest_cores"];
const CHOICES = ["nic", "host"];
/** Placements, as the curves show them. */
const LINES = {
  vf: { name: "vf", colour: "ns" },
  synthetic: { name: "synthetic", colour: "ew" },
  "ends-on-vf": { name: "ends on vf", colour: "lane", dash: "dashed" },
  kernel: { name: "kernel", colour: "muted", dash: "dotted" },
};
/** Names of paths in sentences. */
const CARRIER = { vf: "VFs", synthetic: "switch" };
const FRAME_TICKS = [64, 256, 512, 768, 1024, 1280, 1518];
const FCS = 4;

/** The query of the last answer, of the one that is wanted, and whether one is on its way. */
let [answered, wanted, running] = [null, location.search, false];
let answer = null;

const over = { length: new LinePlot("Over the guests of a chain", "taller"), frame: new LinePlot("Over the frame size, bytes with FCS", "taller") };
at("plots").append(over.length.node, over.frame.node);

/** Gbit/s without FCS. */
const gbps = (mpps, frame) => (mpps * (frame - FCS) * 8) / 1000;
const isBits = () => at("unit").value === "gbps";
const shown = (value) => digits(value) + (isBits() ? " Gbit/s" : " Mpps");

const guests = new Table(
  "guest-table", "Guests of a chain: recommended path, bottleneck, alternative",
  [
    { title: "Guest", value: (one) => one.adapter },
    { title: "Path", value: (one) => pathLabel(one.path) },
    { title: "Bottleneck", value: (one) => one.binding_limit ?? "-" },
    { title: "Free", value: (one) => one.margin === null ? "-" : percent(Math.max(0, one.margin)), number: true },
    { title: "Alternative", value: alternative },
  ],
  (one) => one.adapter,
);

const resources = new Table(
  "resource-table", "Resources of the machine at that rate, the fullest first",
  [
    { title: "Resource", value: (one) => one.limit },
    { title: "Of", value: (one) => one.of || "all" },
    { title: "Used", class: "wide", value: (one) => bar([{ share: one.taken, name: one.taken > 0.999 ? "full" : "busy" }]) },
    { title: "Share", value: (one) => percent(one.taken), number: true },
    { title: "Meaning", class: "why", value: (one) => one.meaning },
  ],
  (one) => `${one.limit} ${one.of}`,
);

const points = new Table(
  "point-table", "Rates of the curves with their bottlenecks",
  [
    { title: "Chain", value: (one) => one.name },
    ...Object.entries(LINES).map(([placement, { name }]) => ({
      title: name,
      value: (one) => {
        const { mpps, limit } = one.of[placement];
        return mpps === null ? "-" : `${shown(isBits() ? gbps(mpps, one.frame) : mpps)}, ${limit}`;
      },
    })),
  ],
  (one) => one.name,
);

/** A path as a label with its colour. */
function pathLabel(path) {
  return (cell) => {
    const label = cell.firstElementChild ?? cell.appendChild(html("span"));
    attribute(label, "class", `path ${path}`);
    text(label, path);
  };
}

function alternative({ otherwise }) {
  if (otherwise === null) return "none: no VF is left";
  const change = 100 * (otherwise.against - 1);
  const words = Math.abs(change) < 0.5 ? "no change" : `${change > 0 ? "+" : "−"}${Math.abs(change).toFixed(0)} %`;
  return `${otherwise.path}: ${words} (${otherwise.binding_limit})`;
}

/** A guest in the picture of the chain. */
const chain = new Keyed(at("chain"), () => {
  const [name, path] = [html("span", { class: "name" }), html("span")];
  return { node: html("li", {}, name, path), name, path };
});

function showChain(advice) {
  const wire = (key) => ({ key, adapter: "wire", path: null });
  const all = [wire("in"), ...advice.adapters.map((one) => ({ ...one, key: one.adapter })), wire("out")];
  chain.show(all, (one) => one.key, ({ node, name, path }, one) => {
    attribute(node, "class", one.path ?? "wire");
    text(name, one.adapter);
    attribute(path, "class", one.path ? `path ${one.path}` : null);
    text(path, one.path ?? "");
  });
}

function showTotals({ advice, cores, nics, nic }) {
  text(at("mpps"), digits(advice.mpps));
  text(at("gbps"), digits(advice.gbps));
  text(at("limit"), advice.binding_limit);
  text(at("limit-meaning"), `bottleneck: ${advice.resources.find((one) => one.limit === advice.binding_limit)?.meaning}`);
  const vfs = nics.find((one) => one.name === nic)?.vfs;
  text(at("vfs"), String(advice.vfs));
  text(at("vfs-of"), vfs ? `of ${vfs} VFs` : "VFs of the software NIC");
  text(at("busy"), advice.switch_cores.toFixed(1));
  text(at("busy-of"), `of ${cores} threads of the switch busy`);
  text(at("reason"), advice.reason);
}

/** A sentence about where VFs and the switch change places. */
function crossovers(leads, unit) {
  if (leads.length === 1) return `${leads[0].path} carries more, or as much, everywhere.`;
  return leads.slice(1).map(({ from, path }) => `From ${from} ${unit} on, ${path} carries more.`).join(" ");
}

function showCurves(plot, curves, value, { unit, ticks, frameAt, advice }) {
  const rate = (mpps, i) => mpps === null ? null : isBits() ? gbps(mpps, frameAt(i)) : mpps;
  const lines = Object.entries(LINES).map(([placement, line]) => {
    const { mpps } = curves.lines.find((one) => one.placement === placement);
    return { ...line, points: curves.at.length < 10, values: mpps.map(rate) };
  });
  const here = nearest(curves.at, value);
  const crossing = curves.leads.slice(1).map(({ from, path }) => ({ x: from, words: `${CARRIER[path]} from ${from}` }));
  const best = isBits() ? advice.gbps : advice.mpps;
  const paths = new Set(advice.adapters.map((one) => one.path));
  const colour = paths.size > 1 ? "lane" : paths.has("vf") ? "ns" : "ew";
  plot.show({
    x: curves.at, ticks, lines, here, unit: shown,
    marks: [...crossing, { x: value, solid: true }],
    dots: [{ x: value, y: best, colour }],
    words: `${crossovers(curves.leads, unit)} Recommended at ${value}: ${shown(best)}.`,
  });
}

/** Index of the value that is nearest. */
function nearest(values, value) {
  const far = values.map((one) => Math.abs(one - value));
  return far.indexOf(Math.min(...far));
}

function showPoints({ over_length: lengths, over_frame: frames, frame, length }) {
  const rows = (curves, name, frameAt) => curves.at.map((value, i) => ({
    name: name(value),
    frame: frameAt(value),
    of: Object.fromEntries(curves.lines.map((line) => [line.placement, { mpps: line.mpps[i], limit: line.binding_limit[i] }])),
  }));
  const guestsWord = (count) => `${count} ${count === 1 ? "guest" : "guests"}`;
  points.show([
    ...rows(lengths, (value) => `${guestsWord(value)}, ${frame} B`, () => frame),
    ...rows(frames, (value) => `${guestsWord(length)}, ${value} B`, (value) => value)
      .filter((row) => row.frame !== frame),
  ]);
}

/** The command that computes the same. */
function showCommand({ nic, host, cores, guest_cores, workload, hosts }) {
  const own = hosts.find((one) => one.name === host);
  const words = ["shunt plan --workload chain.toml", ...(nic ? [`--nic ${nic}`] : []), `--host ${host}`, `--cores ${cores}`];
  if (own.guest_cores !== guest_cores) words.push(`--what-if guest-cores=${guest_cores}`);
  text(at("command"), words.join(" "));
  text(at("workload"), workload);
}

function showAsked({ length, chains, frame, cores, guest_cores }) {
  const all = length * chains;
  const share = Math.min(1, guest_cores / all);
  text(at("length-shown"), String(length));
  text(at("chains-shown"), `${chains}, so ${all} ${all === 1 ? "guest" : "guests"}`);
  text(at("frame-shown"), `${frame} B`);
  text(at("cores-shown"), String(cores));
  text(at("guest_cores-shown"), `${guest_cores}, so ${digits(share)} each`);
}

function show(told) {
  answer = told;
  const frameAt = (i) => told.over_frame.at[i];
  showAsked(told);
  showChain(told.advice);
  showTotals(told);
  showCurves(over.length, told.over_length, told.length, {
    unit: "guests", ticks: told.over_length.at.map((value) => [value, String(value)]), frameAt: () => told.frame, advice: told.advice,
  });
  showCurves(over.frame, told.over_frame, told.frame, {
    unit: "bytes", ticks: FRAME_TICKS.map((value) => [value, String(value)]), frameAt, advice: told.advice,
  });
  guests.show(told.advice.adapters);
  resources.show(told.advice.resources.filter((one) => one.taken >= 0.001));
  showPoints(told);
  showCommand(told);
}

/** Fills the choices. */
function fill(told) {
  const soft = html("option", { value: "", hidden: "" }, "the software NIC");
  at("nic").replaceChildren(...told.nics.map((one) => html("option", { value: one.name }, one.title)), soft);
  at("host").replaceChildren(...told.hosts.map((one) => html("option", { value: one.name }, one.name)));
}

/** Sets all to what an answer is for. */
function set(told) {
  for (const name of SLIDERS) at(name).value = told[name];
  at("host").value = told.host;
  at("nic").value = told.nic ?? "";
  const host = told.hosts.find((one) => one.name === told.host);
  at("nic").disabled = host.soft_nic;
  const title = host.title[0].toUpperCase() + host.title.slice(1);
  text(at("host-title"), host.soft_nic ? `${title}. Its VFs are those of the software NIC, without PCIe.` : `${title}.`);
}

/** The query of the sliders; the NIC only if the host takes one. */
function query() {
  const values = SLIDERS.map((name) => [name, at(name).value]);
  const host = answer.hosts.find((one) => one.name === at("host").value);
  const isNicUsed = !host.soft_nic && at("nic").value !== "";
  const names = CHOICES.filter((name) => name === "host" || isNicUsed).map((name) => [name, at(name).value]);
  return `?${new URLSearchParams([...values, ...names])}`;
}

function status(state, words) {
  attribute(at("status"), "data-state", state);
  text(at("status-text"), words);
}

/** Asks until the answer is for what is wanted. */
async function run() {
  if (running) return;
  running = true;
  while (answered !== wanted) {
    const asked = wanted;
    try {
      const begun = performance.now();
      const told = await ask(`/v1/plan${asked}`);
      const took = performance.now() - begun;
      answered = asked;
      showFigures();
      if (answer === null) fill(told);
      show(told);
      if (wanted === asked) set(told);
      status("live", `answered in ${took.toFixed(0)} ms`);
      attribute(at("figures"), "data-query", asked);
    } catch (error) {
      if (error instanceof TokenNeeded) {
        status("stop", "token needed");
        askForToken(error.message);
      } else {
        status("stop", error.message);
      }
      break;
    }
  }
  running = false;
}

function want(asked) {
  wanted = asked;
  run();
}

for (const name of SLIDERS) {
  at(name).addEventListener("input", () => {
    showAsked(Object.fromEntries(SLIDERS.map((name) => [name, Number(at(name).value)])));
    want(query());
  });
}
at("nic").addEventListener("change", () => want(query()));
// Another host begins with its own cores.
at("host").addEventListener("change", () => {
  const host = answer.hosts.find((one) => one.name === at("host").value);
  at("cores").value = host.cores;
  at("guest_cores").value = host.guest_cores;
  want(query());
});
// The address follows when a slider is let go: browsers limit how often it may change.
for (const name of [...SLIDERS, ...CHOICES]) {
  at(name).addEventListener("change", () => history.replaceState(null, "", location.pathname + wanted));
}
at("unit").addEventListener("change", () => show(answer));
at("save").addEventListener("click", () => {
  const address = URL.createObjectURL(new Blob([answer.workload], { type: "application/toml" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = "chain.toml";
  link.click();
  URL.revokeObjectURL(address);
});
onToken(run);
run();
