// Rates from two readings of the daemon. Sent and received are the guest's, as everywhere in Shunt.

const STAGES = ["poll", "descriptors", "classify", "copy", "publish", "notify"];
const NONE = { drops: {}, faults: {} };

const sum = (counts) => Object.values(counts).reduce((all, one) => all + one, 0);

/** Name of an adapter in counters, without its NIC: `vf3` for the adapter `nic0-vf3` of a file. */
function shortName(nic, adapter) {
  return adapter.startsWith(`${nic}-vf`) ? adapter.slice(nic.length + 1) : adapter;
}

/** Counters of a port as rates; `old` is its earlier reading, if any. */
function portRates(old, port, seconds) {
  const rate = (name) => Math.max(0, (port[name] ?? 0) - (old[name] ?? 0)) / seconds;
  const [tx, rx] = [rate("tx_frames"), rate("rx_frames")];
  const [txBits, rxBits] = [8 * rate("tx_bytes"), 8 * rate("rx_bytes")];
  const wirePps = rate("tx_uplink_frames") + rate("rx_uplink_frames");
  const wireBps = 8 * (rate("tx_uplink_bytes") + rate("rx_uplink_bytes"));
  const rates = Object.entries(port.drops).map(([reason, count]) => ({
    reason,
    rate: Math.max(0, count - (old.drops[reason] ?? 0)) / seconds,
  }));
  const share = (part, whole) => (whole > 0 ? part / whole : 0);
  const full = rates.find((one) => one.reason === "rx_no_buffer")?.rate ?? 0;
  const lost = rates.reduce((all, one) => all + one.rate, 0);
  return {
    tx, rx, txBits, rxBits, wirePps, wireBps,
    // Received from other guests: of east/west traffic each frame is counted where it arrives.
    localPps: Math.max(0, rx - rate("rx_uplink_frames")),
    localBps: Math.max(0, rxBits - 8 * rate("rx_uplink_bytes")),
    // East/west traffic at this port in both directions, for its line in the picture.
    localBoth: Math.max(0, txBits + rxBits - wireBps),
    lost,
    worst: rates.filter((one) => one.rate > 0).sort((a, b) => b.rate - a.rate)[0]?.reason ?? "",
    dropped: sum(port.drops),
    cycles: rate("tx_cycles"),
    // Of the rings: bursts that left frames waiting in it, and frames that found no buffer in it.
    backlog: share(rate("tx_backlog_bursts"), rate("tx_bursts")),
    noBuffer: share(full, full + rx),
  };
}

function laneRates(old, lane, seconds) {
  const gain = (name) => Math.max(0, (lane[name] ?? 0) - (old?.[name] ?? 0));
  const cycles = seconds * Math.max(1, lane.tsc_hz ?? 1);
  const [busy, idle, frames] = [gain("busy_cycles"), gain("idle_cycles"), gain("frames")];
  const sampled = gain("sampled_frames");
  return {
    name: lane.lane,
    // The thread of ports in quarantine is no lane.
    apart: !/^\d+$/.test(lane.lane),
    busy: Math.min(1, busy / cycles),
    idle: Math.min(1, idle / cycles),
    away: Math.max(0, 1 - (busy + idle) / cycles),
    fps: frames / seconds,
    burst: frames / Math.max(1, gain("bursts")),
    // Share of bursts that left frames waiting in their ring.
    backlog: gain("backlog_bursts") / Math.max(1, gain("bursts")),
    cost: frames > 0 ? busy / frames : 0,
    sleeps: gain("sleeps") / seconds,
    gapMs: (lane.poll_gap_ns_max ?? 0) / 1e6,
    stages: STAGES.map((stage) => ({
      stage,
      cost: sampled > 0 ? gain(`stage_${stage}_cycles`) / sampled : 0,
    })),
  };
}

/** Drops and faults of all ports, most frequent first. */
function droppedBy(ports, before, seconds) {
  const all = [];
  for (const port of ports) {
    const old = before.get(port.name) ?? NONE;
    for (const [kind, counts, earlier] of [["drop", port.drops, old.drops], ["fault", port.faults, old.faults]]) {
      for (const [reason, total] of Object.entries(counts)) {
        const rate = Math.max(0, total - (earlier[reason] ?? 0)) / seconds;
        all.push({ port: port.name, kind, reason, total, rate });
      }
    }
  }
  return all.sort((a, b) => b.total - a.total || a.port.localeCompare(b.port));
}

/** Everything that the page shows, from two readings; `before` may be the same as `now`. */
export function view(before, now) {
  const seconds = Math.max(1e-3, (now.clock_us - before.clock_us) / 1e6);
  const earlier = new Map(before.stats.ports.map((port) => [port.name, port]));
  const ports = new Map(now.stats.ports.map((port) => {
    const rates = portRates(earlier.get(port.name) ?? NONE, port, seconds);
    return [port.name, { port, ...rates }];
  }));
  const document = now.document;
  const switches = new Map(document.switch.map((one) => [one.name, one]));
  const wanted = new Map(document.adapter.map((one) => [one.name, one]));
  const taken = new Set();
  const adapters = now.in_force.actual.adapters.map((adapter) => {
    const own = wanted.get(adapter.name);
    const nic = own?.nic ?? switches.get(own?.switch)?.nic ?? "";
    const name = `${nic}/${shortName(nic, adapter.name)}`;
    taken.add(name);
    return {
      key: name, kind: "adapter", name: adapter.name, nic, wanted: own?.path ?? "", ...adapter,
      rates: ports.get(name),
    };
  });
  const others = [...ports.keys()].filter((name) => !taken.has(name) && !name.endsWith("/uplink"));
  const ends = adapters.concat(others.map((key) => {
    const [nic, name] = [key.slice(0, key.indexOf("/")), key.slice(key.indexOf("/") + 1)];
    return { key, kind: "port", name, nic, path: "", reason: "", rates: ports.get(key) };
  }));
  const nics = now.in_force.actual.nics.map((nic) => ({
    ...nic,
    uplinkRates: ports.get(`${nic.name}/uplink`),
    switch: document.switch.find((one) => one.nic === nic.name)?.name ?? "",
    ends: ends.filter((end) => end.nic === nic.name && end.rates),
  }));
  const all = [...ports.values()];
  const total = (name) => all.reduce((whole, one) => whole + one[name], 0);
  // An uplink's own frames are its guests', counted there.
  const local = all.filter((one) => !one.port.name.endsWith("/uplink"));
  const localTotal = (name) => local.reduce((whole, one) => whole + one[name], 0);
  return {
    seconds, ends, nics,
    lanes: now.stats.lanes.map((lane) => {
      return laneRates(before.stats.lanes.find((old) => old.lane === lane.lane), lane, seconds);
    }),
    hertz: Math.max(1, now.stats.lanes[0]?.tsc_hz ?? 1),
    dropped: droppedBy(now.stats.ports, earlier, seconds),
    totals: {
      wireBps: total("wireBps"), localBps: localTotal("localBps"),
      wirePps: total("wirePps"), localPps: localTotal("localPps"),
      lost: total("lost"), sent: total("tx"), dropped: total("dropped"),
    },
  };
}
