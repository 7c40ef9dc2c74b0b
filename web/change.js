// Changes of an adapter: a plan first, then exactly that plan.

import { at, attribute, html } from "./dom.js";
import { ask } from "./feed.js";

/** Settings by the ID of their field, and their type in the document. */
const SETTINGS = {
  path: String, iov_weight: Number, vmq_weight: Number, min_tx_mbps: Number, max_tx_mbps: Number, link_state: String,
};

const dialog = at("change");
const adapter = at("change-adapter");
const apply = at("change-apply");
const plan = at("change-plan");
const field = (name) => at(`change-${name}`);
let document = null;
let generation = 0;
/** The patch that the plan shows, and the generation that it is for. */
let planned = null;

/** Takes the document of a reading; an open form keeps the one that it began with. */
export function show(reading) {
  if (dialog.open) return;
  document = reading.document;
  generation = reading.in_force.generation;
  attribute(at("change-open"), "disabled", document.adapter.length === 0 ? "" : null);
}

/** The adapter that is chosen, as the document has it. */
const chosen = () => document.adapter.find((one) => one.name === adapter.value);

at("change-open").addEventListener("click", () => {
  adapter.replaceChildren(...document.adapter.map((one) => html("option", {}, one.name)));
  fill();
  dialog.showModal();
});
at("change-close").addEventListener("click", () => dialog.close());
adapter.addEventListener("change", fill);

function fill() {
  for (const [name, type] of Object.entries(SETTINGS)) {
    field(name).value = chosen()[name] ?? (type === Number ? 0 : "");
  }
  forget();
}

/** Without a plan nothing can be applied. */
function forget() {
  planned = null;
  apply.disabled = true;
  plan.replaceChildren();
}

for (const name of Object.keys(SETTINGS)) field(name).addEventListener("input", forget);

/** Settings of the form that differ from the document's. */
function patch() {
  const changed = Object.entries(SETTINGS).map(([name, type]) => [name, type(field(name).value)]);
  return Object.fromEntries(changed.filter(([name, value]) => value !== chosen()[name]));
}

const address = () => `/v1/adapters/${encodeURIComponent(adapter.value)}`;

function tell(lines, kind = "") {
  plan.replaceChildren(...lines.map((line) => html("li", { class: kind }, line)));
}

const shown = (value) => value === null ? "none" : String(value);

at("change-show").addEventListener("click", async () => {
  forget();
  const body = patch();
  if (Object.keys(body).length === 0) return tell(["Nothing differs from the state in force."]);
  try {
    const outcome = await ask(`${address()}?dry_run=true`, { method: "PATCH", body, generation });
    const steps = outcome.plan.steps.flatMap(({ action, kind, name, changes }) => {
      const of = `${action} ${kind} ${name}`;
      return changes.length === 0 ? [of] : changes.map(({ field, from, to }) => `${of}: ${field} ${shown(from)} → ${shown(to)}`);
    });
    tell(steps.length > 0 ? steps : ["Nothing would change."]);
    if (steps.length === 0) return;
    planned = { body, generation: outcome.generation, address: address() };
    apply.disabled = false;
  } catch (error) {
    tell([error.message], "bad");
  }
});

apply.addEventListener("click", async () => {
  apply.disabled = true;
  try {
    const { body, generation: expected, address: path } = planned;
    await ask(path, { method: "PATCH", body, generation: expected });
    dialog.close();
  } catch (error) {
    tell([error.message], "bad");
  }
});
