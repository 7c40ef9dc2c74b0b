// The time line of events: path changes, sessions, devices, migrations, upgrades, changes.

import { at, html, text } from "./dom.js";
import { clock } from "./format.js";

/** Most events in the list; the daemon keeps as many. */
const EVENTS_MAX = 1024;
/** Kinds that the charts mark. */
const MARKED = new Set(["start", "upgrade", "undo", "path", "card", "quarantine", "move", "refused"]);

const list = at("event-list");
const choice = at("kind");
const kinds = new Set();
let marks = [];

choice.addEventListener("change", () => {
  for (const row of list.children) row.hidden = !isShown(row.dataset.kind);
});

const isShown = (kind) => choice.value === "" || choice.value === kind;

/** Times of events that the charts mark, in seconds since 1970. */
export const marked = () => marks;

/** Adds the events of a reading, the newest on top. */
export function show({ events, restarted }) {
  if (restarted) {
    list.replaceChildren();
    marks = [];
  }
  for (const event of events.events) {
    list.prepend(row(event));
    if (MARKED.has(event.kind)) marks.push(event.time_ms / 1000);
    if (!kinds.has(event.kind)) {
      kinds.add(event.kind);
      choice.append(html("option", { value: event.kind }, event.kind));
    }
  }
  while (list.childElementCount > EVENTS_MAX) list.lastElementChild.remove();
}

function row(event) {
  const time = html("time", { datetime: new Date(event.time_ms).toISOString() }, clock(event.time_ms));
  const kind = html("span", { class: "kind" });
  text(kind, event.kind);
  const words = html("span", { class: "words" });
  if (event.subject) words.append(html("b", {}, event.subject), " ");
  words.append(event.text);
  const node = html("li", { "data-kind": event.kind }, time, kind, words);
  node.hidden = !isShown(event.kind);
  return node;
}
