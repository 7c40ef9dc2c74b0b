// Published measurements (published/*.csv of the repository) as cells, beside those of runs.

import { FORWARD, STREAM } from "./results.js";

/** The lab's names of the papers' interfaces. */
const PATHS = { sriov: "vf", vhost: "vhost", virtio: "virtio" };
const NAMES = ["nfv_dpdk_forwarding", "nfv_netperf_tcp", "headlines"];

/** Rows of a CSV file (RFC 4180) as objects by the names of its columns. */
export function rowsOf(words) {
  const rows = [[""]];
  let quoted = false;
  for (let i = 0; i < words.length; i += 1) {
    const [row, sign] = [rows.at(-1), words[i]];
    if (quoted && sign === '"' && words[i + 1] === '"') {
      row[row.length - 1] += '"';
      i += 1;
    } else if (sign === '"') quoted = !quoted;
    else if (!quoted && sign === ",") row.push("");
    else if (!quoted && sign === "\n") rows.push([""]);
    else if (sign !== "\r") row[row.length - 1] += sign;
  }
  const [names, ...values] = rows.filter((row) => row.length > 1);
  return values.map((row) => Object.fromEntries(names.map((name, i) => [name, row[i]])));
}

const figure = (value) => ({ value: Number(value), least: null, most: null, slots: null, bound: false });

/** All tables: { cells, headlines }. */
export async function published() {
  const texts = await Promise.all(NAMES.map(async (name) => {
    const answer = await fetch(`/web/published/${name}.csv`);
    if (!answer.ok) throw new Error(`${name}.csv: HTTP ${answer.status}`);
    return rowsOf(await answer.text());
  }));
  const [forwarding, tcp, headlines] = texts;
  const forward = forwarding.map((row) => ({
    id: `forward ${row.pattern} closed split`,
    title: `Forwarding, ${row.pattern === "north-south" ? "North/south" : "East/west"}`,
    form: FORWARD, pick: Number(row.frame_bytes), x: Number(row.vms), path: PATHS[row.interface],
    paper: "nfv-2017", figures: { mpps: figure(row.mpps), gbps: figure(row.gbps) },
  }));
  const current = tcp.filter((row) => row.components === "current").map((row) => ({
    id: "transfer tcp-stream north-south", title: "TCP, north/south",
    form: STREAM, pick: "4", x: Number(row.send_bytes), path: PATHS[row.interface],
    paper: "nfv-2017", figures: { gbps: figure(row.gbps) },
  }));
  return { cells: [...forward, ...current], headlines };
}
