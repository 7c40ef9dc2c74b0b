// Results of `shunt lab` (docs/results.schema.json) as cells: one for each configuration and figure.
//
// A group is one kind of measurement. A cell has the group's `id`, `pick` (a number or text that is
// chosen), `x` (its place on the chart), `path`, and `figures` by name: { value, least, most, slots,
// bound }. The value of repeated points is that of the report: the median by Mpps, of two the lower,
// of the steady ones if there are any.

/** Share of the CPUs' time of others from which a point counts as disturbed, as in the report. */
const OTHERS_MUCH = 0.05;
/** Bands of round trips between CPUs, in cycles: name and upper end. */
const BANDS = [["under 120", 120], ["120-300", 300], ["300-600", 600], ["600 and more", Infinity]];
const SCHEMA_MAX = 2;

/** Reads a file; throws an error that says what is wrong. */
export function parse(words) {
  let run;
  try {
    run = JSON.parse(words);
  } catch (error) {
    throw new Error(`is no JSON: ${error.message}`);
  }
  const isRun = run !== null && typeof run === "object" && Array.isArray(run.points) && run.started?.utc && run.machine;
  if (!isRun) throw new Error("has no points, machine and start of a run; open the results.json of shunt lab");
  if ((run.schema ?? 1) > SCHEMA_MAX) throw new Error(`is of schema ${run.schema}, and this page reads up to ${SCHEMA_MAX}; open it with a newer daemon`);
  for (const name of ["points", "transfers", "receives", "copies"]) {
    if (!Array.isArray(run[name] ?? [])) throw new Error(`has no list "${name}"; open the results.json of shunt lab`);
  }
  return run;
}

/** The band of a round trip; null if the CPUs moved, or it is not known. */
export function band(cycles) {
  if (!(cycles > 0)) return null;
  return BANDS.find(([, end]) => cycles < end)[0];
}

const load = (point) => point.load ?? "closed";
const ring = (point) => point.ring ?? "split";
const sum = (counts) => Object.values(counts ?? {}).reduce((all, one) => all + one, 0);

/** A closed loop that lost frames had fewer in flight than stated. */
function lostInClosedLoop(point) {
  return load(point) === "closed" && (point.lost_frames > 0 || sum(point.drops) > 0);
}

/** No unexpected loss, the CPUs did not move, and others did not use them. */
function isSteady(point) {
  const moved = point.round_trip_cycles != null && point.round_trip_cycles <= 0;
  return !lostInClosedLoop(point) && !moved && (point.others_share ?? 0) < OTHERS_MUCH;
}

/** The item whose figure is the median, of two the lower. */
function middle(items, figure) {
  const sorted = [...items].sort((a, b) => figure(a) - figure(b));
  return sorted[(sorted.length - 1) >> 1];
}

const POINT_FIGURES = {
  mpps: (point) => point.mpps,
  gbps: (point) => point.gbps,
  cycles: (point) => point.switch_cycles_per_frame,
};

/** Figures of points of one configuration. */
function figuresOf(points) {
  const steady = points.filter(isSteady);
  const used = steady.length > 0 ? steady : points;
  const chosen = middle(used, (point) => point.mpps);
  const figures = {};
  for (const [name, of] of Object.entries(POINT_FIGURES)) {
    const value = of(chosen);
    if (value == null) continue;
    const all = used.map(of).filter((one) => one != null);
    figures[name] = {
      value, least: Math.min(...all), most: Math.max(...all), slots: used.length,
      bound: name !== "cycles" && chosen.bottleneck === "generator",
    };
  }
  return { figures, steady: steady.length > 0, limit: chosen.bottleneck };
}

/** Title of a kind of forwarding, as in the report. */
function forwardTitle(point) {
  const parts = [point.pattern === "north-south" ? "North/south" : "East/west"];
  if (load(point) !== "closed") parts.push(load(point));
  if (ring(point) !== "split") parts.push(`${ring(point)} rings`);
  return `Forwarding, ${parts.join(", ")}`;
}

export const FORWARD = {
  pick: { name: "Frame", words: (bytes) => `${bytes} B` },
  x: { name: "guests", words: (guests) => String(guests) },
  figures: { mpps: "Mpps", gbps: "Gbit/s", cycles: "cycles/frame" },
};
export const STREAM = {
  pick: { name: "Streams", words: (words) => words },
  x: { name: "bytes of a write", words: (bytes) => bytes >= 1024 && bytes % 1024 === 0 ? `${bytes / 1024} Ki` : String(bytes) },
  figures: { gbps: "Gbit/s" },
};
const REQUEST = { ...STREAM, figures: { p50: "median, us", p99: "p99, us", per_s: "requests/s" } };
const RECEIVE = {
  pick: { name: "Guests", words: (guests) => String(guests) },
  x: { name: "bytes of a frame", words: (bytes) => String(bytes) },
  figures: { mpps: "Mpps", gbps: "Gbit/s", cycles: "cycles/frame" },
};
const COPY = {
  pick: { name: "File", words: (mib) => `${mib} MiB` },
  x: { name: "guests", words: (words) => words },
  figures: { gbps: "Gbit/s", seconds: "seconds", cpu: "CPU s/GiB" },
};
/** Figures of which less is better. */
export const LESS_IS_BETTER = new Set(["cycles", "p50", "p99", "seconds", "cpu"]);

function forwardCells(run) {
  const places = new Map();
  for (const point of run.points) {
    const id = `forward ${point.pattern} ${load(point)} ${ring(point)}`;
    const key = `${id} ${point.frame_bytes} ${point.vms} ${point.path}`;
    if (!places.has(key)) places.set(key, { id, points: [] });
    places.get(key).points.push(point);
  }
  return [...places.values()].map(({ id, points }) => {
    const [first] = points;
    const bands = new Map();
    for (const point of points) {
      const its = point.round_trip_cycles == null ? "unknown" : band(point.round_trip_cycles);
      if (its === null) continue;
      if (!bands.has(its)) bands.set(its, []);
      bands.get(its).push(point);
    }
    return {
      id, title: forwardTitle(first), form: FORWARD, pick: first.frame_bytes, x: first.vms, path: first.path,
      ...figuresOf(points),
      bands: new Map([...bands].map(([name, its]) => [name, figuresOf(its)])),
    };
  });
}

const spread = (three, bound = false, slots = null) => three && { value: three[1], least: three[0], most: three[2], slots, bound };
const alone = (value) => value == null ? null : { value, least: null, most: null, slots: null, bound: false };
const known = (figures) => Object.fromEntries(Object.entries(figures).filter(([, figure]) => figure != null));

const WORKLOADS = { "tcp-stream": "TCP", "udp-transmit": "UDP, sent", "udp-receive": "UDP, received", "udp-request": "UDP requests" };

function transferCells(run) {
  return (run.transfers ?? []).map((one) => {
    const isRequest = one.workload === "udp-request";
    const bound = one.bottleneck === "generator";
    const buffers = one.buffer_kib ? `, ${one.buffer_kib} KiB buffers` : "";
    const trip = one.round_trip;
    const figures = isRequest
      ? { p50: alone(trip?.p50_us), p99: alone(trip?.p99_us), per_s: alone(trip?.per_s) }
      : { gbps: spread(one.gbps, bound, one.rounds) };
    return {
      id: `transfer ${one.workload} ${one.pattern}`,
      title: `${WORKLOADS[one.workload] ?? one.workload}, ${one.pattern.replace("-", "/")}`,
      form: isRequest ? REQUEST : STREAM,
      pick: `${one.streams}${buffers}`, x: one.send_bytes, path: one.path, limit: one.bottleneck, steady: true,
      figures: known(figures),
      published: one.published == null ? null : { [isRequest ? "p99" : "gbps"]: one.published },
    };
  });
}

function receiveCells(run) {
  return (run.receives ?? []).flatMap((one) => ["vmq", "synthetic"].map((path) => {
    const side = one[path];
    const paper = { vmq: one.published?.with_gbps, synthetic: one.published?.without_gbps }[path];
    return {
      id: "receive", title: "Receiving, with a queue for each guest and without", form: RECEIVE,
      pick: one.guests, x: one.frame_bytes, path, limit: one.generator_bound ? "generator" : "switch", steady: true,
      figures: known({
        mpps: spread(side.mpps, one.generator_bound, one.rounds),
        gbps: spread(side.gbps, one.generator_bound, one.rounds),
        cycles: spread(side.switch_cycles_per_frame, false, one.rounds),
      }),
      published: paper == null ? null : { gbps: paper },
    };
  }));
}

function copyCells(run) {
  return (run.copies ?? []).flatMap((one) => one.guests.map((guest, i) => ({
    id: "copy", title: "File copies", form: COPY,
    pick: one.file_mib, x: `${one.guests.length} ${one.setup}`,
    path: one.guests.filter((other) => other.path === guest.path).length > 1 ? `${guest.path}, guest ${i}` : guest.path,
    limit: "-", steady: true,
    figures: known({
      gbps: spread(guest.gbps, false, one.rounds),
      seconds: spread(guest.seconds, false, one.rounds),
      cpu: spread(guest.cpu_s_per_gib, false, one.rounds),
    }),
  })));
}

/** All cells of a run. */
export function cells(run) {
  return [...forwardCells(run), ...transferCells(run), ...receiveCells(run), ...copyCells(run)];
}

/**
 * Compares one figure of two cells: { ratio, least, most } of B over A, from the same distance of CPUs
 * where that is known; or { why }, the reason for which there is none. The ends are those of the
 * extreme slots.
 */
export function compare(a, b, name) {
  if (!a || !b) return { why: a || b ? "only in one run" : "" };
  let [one, other] = [a.figures[name], b.figures[name]];
  if (!one || !other) return { why: "not in both" };
  let at = null;
  if (a.bands && b.bands) {
    const shared = [...a.bands.keys()].filter((key) => b.bands.has(key));
    const slots = (key) => Math.min(a.bands.get(key).figures[name]?.slots ?? 0, b.bands.get(key).figures[name]?.slots ?? 0);
    const [best] = shared.sort((x, y) => slots(y) - slots(x));
    if (best === undefined || slots(best) === 0) return { why: "other distance of CPUs" };
    [one, other, at] = [a.bands.get(best).figures[name], b.bands.get(best).figures[name], best];
  }
  if (name === "cycles" && a.schema !== b.schema) return { why: "other definition" };
  if (one.bound || other.bound) return { why: "generator was the limit" };
  if (!a.steady || !b.steady) return { why: "disturbed" };
  if (!(one.value > 0)) return { why: "A is 0" };
  const hasEnds = one.least != null && other.least != null && one.least > 0;
  return {
    ratio: other.value / one.value,
    least: hasEnds ? other.least / one.most : null,
    most: hasEnds ? other.most / one.least : null,
    at,
  };
}
