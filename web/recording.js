// Recordings: the readings of this page as a file, and a file shown as if it were live.
//
// A line is JSON: the first one names the format, each other is a reading. The document is in a
// reading only if it differs from the one before.

import { at, attribute, text } from "./dom.js";
import { clock } from "./format.js";

const FORMAT = { shunt_recording: 1 };
/** Most readings of a recording: an hour of one a second. */
const READINGS_MAX = 3600;
/** Most characters of a recording: a browser reads no much larger file as a text. */
const LENGTH_MAX = 400 << 20;
const PERIOD_MS = 1000;

let recorded = null;
let playing = null;

const recordButton = at("record");
const file = at("recording");
const openButton = at("open");

/** `true` while a recording is shown in place of the daemon's figures. */
export const isPlaying = () => playing !== null;

/** Notes a reading, if a recording runs. */
export function note(reading) {
  if (recorded === null) return;
  const { document, restarted, ...rest } = reading;
  const isNew = document !== recorded.document;
  recorded.document = document;
  const line = JSON.stringify(isNew ? { ...rest, restarted, document } : { ...rest, restarted });
  recorded.lines.push(`${line}\n`);
  recorded.length += line.length + 1;
  text(recordButton, `Stop and save (${recorded.lines.length} s)`);
  if (recorded.lines.length >= READINGS_MAX || recorded.length >= LENGTH_MAX) save();
}

/** Ends the recording, and gives the browser its file. */
function save() {
  const file = new Blob([`${JSON.stringify(FORMAT)}\n`, ...recorded.lines], { type: "application/jsonl" });
  recorded = null;
  text(recordButton, "Record");
  attribute(recordButton, "aria-pressed", "false");
  const address = URL.createObjectURL(file);
  const link = document.createElement("a");
  link.href = address;
  link.download = `shunt-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.jsonl`;
  link.click();
  URL.revokeObjectURL(address);
}

/** Lines of a recording, each a reading; one is parsed when it is shown, since all need much memory. */
function parse(words) {
  const [first, ...lines] = words.split("\n").filter((line) => line !== "");
  if (!first || JSON.parse(first)?.shunt_recording !== FORMAT.shunt_recording) {
    throw new Error("not a recording of this dashboard");
  }
  if (lines.length === 0) throw new Error("no readings; record for a second or more");
  let hasDocument = false;
  lines.forEach((line, i) => {
    const reading = JSON.parse(line);
    hasDocument ||= Boolean(reading?.document);
    const isReading = reading?.clock_us > 0 && reading.stats?.ports && reading.in_force?.actual && reading.events?.events;
    if (!isReading || !hasDocument) throw new Error(`line ${i + 2} is no reading; record again`);
  });
  return lines.slice(0, READINGS_MAX);
}

/**
 * Connects the buttons. `begin()` and `end()` are called before and after a recording is shown,
 * `show(reading)` for each of its readings, `tell(words)` with what is shown.
 */
export function connect({ begin, end, show, tell }) {
  recordButton.addEventListener("click", () => {
    if (recorded !== null) return save();
    recorded = { lines: [], length: 0, document: null };
    attribute(recordButton, "aria-pressed", "true");
  });
  const stop = () => {
    clearTimeout(playing);
    playing = null;
    text(openButton, "Play a recording");
    end();
  };
  const play = (lines, i, before) => {
    if (i === lines.length) {
      tell(`recording: its end`);
      return;
    }
    const reading = JSON.parse(lines[i]);
    const document = reading.document ?? before;
    show({ ...reading, document, restarted: i === 0 || reading.restarted });
    tell(`recording ${clock(reading.time_ms)}`);
    const pace = Number(at("pace").value);
    playing = setTimeout(() => play(lines, i + 1, document), PERIOD_MS / pace);
  };
  openButton.addEventListener("click", () => isPlaying() ? stop() : file.click());
  file.addEventListener("change", async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    text(at("problem"), "");
    try {
      const lines = parse(await chosen.text());
      if (isPlaying()) clearTimeout(playing);
      playing = 0;
      text(openButton, "Back to live");
      begin();
      play(lines, 0, null);
    } catch (error) {
      text(at("problem"), `${chosen.name}: ${error.message}`);
    }
    file.value = "";
  });
}
