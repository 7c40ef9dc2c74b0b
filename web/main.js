// The page: it follows the daemon, and hands each reading to the parts that show it.

import { show as showChange } from "./change.js";
import { begin as beginCharts, show as showCharts } from "./charts.js";
import { show as showDials } from "./dials.js";
import { at, attribute, text } from "./dom.js";
import { show as showEvents } from "./events.js";
import { earlier, follow, reasons, rewind, TokenNeeded } from "./feed.js";
import { show as showHouse } from "./house.js";
import { askForToken, onToken, showFigures } from "./login.js";
import { view } from "./model.js";
import { connect, isPlaying, note } from "./recording.js";
import { explain, show as showTables } from "./tables.js";

let before = null;
let answered = performance.now();

function status(state, words) {
  attribute(at("status"), "data-state", state);
  text(at("status-text"), words);
}

/** Shows a reading; rates need the one before. */
function seen(now) {
  showFigures();
  attribute(at("figures"), "class", null);
  const isLater = before !== null && !now.restarted && now.clock_us > before.clock_us;
  const shown = view(isLater ? before : now, now);
  showEvents(now);
  showDials(shown);
  showHouse(shown);
  showTables(shown);
  if (isLater) showCharts(shown, now.time_ms / 1000);
  attribute(at("figures"), "data-clock", now.clock_us);
  before = now;
}

/** Takes a reading of the daemon, and shows it unless a recording is shown. */
function live(now) {
  answered = performance.now();
  note(now);
  if (isPlaying()) return;
  status("live", "live");
  seen(now);
  showChange(now);
}

/** Tells of a failure; the token must come before the next request. */
function failed(error) {
  if (error instanceof TokenNeeded) {
    status("stop", "token needed");
    askForToken(error.message);
    return false;
  }
  if (isPlaying()) return true;
  const silent = Math.round((performance.now() - answered) / 1000);
  const words = error.name === "TypeError" || error.name === "TimeoutError" ? "" : `: ${error.message}`;
  status("stop", `no answer for ${silent} s${words}`);
  attribute(at("figures"), "class", "stale");
  return true;
}

/** Begins with what the daemon knows of the time before. */
function begin() {
  before = null;
  earlier().then(beginCharts, () => beginCharts([]));
}

async function start() {
  let known = false;
  await follow((now) => {
    if (!known) {
      known = true;
      begin();
      reasons().then(explain, () => (known = false));
    }
    live(now);
  }, failed);
}

connect({
  begin() {
    before = null;
    beginCharts([]);
  },
  end() {
    rewind();
    begin();
    status("wait", "connecting");
  },
  show: seen,
  tell: (words) => status("play", words),
});

onToken(start);
text(at("address"), location.host);
start();
