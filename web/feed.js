// The daemon's figures: one request a second, and the document again when its generation changes.

const PERIOD_MS = 1000;
const ANSWER_MS = 5000;
const KEY = "shunt-token";

/** The daemon wants a token, or another one. */
export class TokenNeeded extends Error {}

let token = fromAddress() ?? kept();
/** The last event that was read; null to begin again. */
let last = null;

/** Takes the token out of the page's address, so that it is in no bookmark and on no screen. */
function fromAddress() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, "", location.pathname + location.search);
  const given = unescaped(found[1]);
  keep(given);
  return given;
}

/** The token of a fragment, also of one that was written without escapes. */
function unescaped(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function kept() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function keep(value) {
  try {
    sessionStorage.setItem(KEY, value);
  } catch {
    // Without storage the token is lost with a reload.
  }
}

/** Uses a token that the reader typed. */
export function use(given) {
  token = given;
  keep(given);
}

/** Uses the token in the page's address; returns `true` if there is one. */
export function useAddress() {
  const given = fromAddress();
  if (given !== null) token = given;
  return given !== null;
}

/**
 * Sends a request to the API; returns its answer, from JSON. `generation`: of the state that a change
 * is for.
 */
export async function ask(path, { method = "GET", body, generation } = {}) {
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  if (generation !== undefined) headers["If-Match"] = `"${generation}"`;
  const signal = AbortSignal.timeout(ANSWER_MS);
  const answer = await fetch(path, { method, headers, body: JSON.stringify(body), cache: "no-store", signal });
  if (answer.status === 401) throw new TokenNeeded(token ? "This token is not the daemon's." : "The token is needed.");
  const told = await answer.json();
  if (!answer.ok) throw new Error(sentence(told.errors?.[0]) ?? `HTTP ${answer.status}`);
  return told;
}

/** An error of the API as one line: object, field and value, error, remedy. */
function sentence(error) {
  if (!error) return null;
  const { object, field, value, message, remedy } = error;
  const place = [object, field].filter((part) => part !== "").join(", ");
  const what = [place && `${place}:`, value, message].filter((part) => part !== "").join(" ");
  return remedy ? `${what}; ${remedy}` : what;
}

/**
 * Calls `seen(reading)` each second and `failed(error)` for each failure, until `failed` returns
 * false. A reading is /v1/live with `document`, the desired state, and `restarted`, true if the
 * daemon's events have begun again.
 */
export async function follow(seen, failed) {
  let [document, next] = [null, performance.now()];
  for (;;) {
    try {
      const known = last;
      const live = await ask(`/v1/live?since=${known ? known.sequence - 1 : 0}`);
      if (document === null || known === null || document.generation !== live.in_force.generation) {
        document = { generation: live.in_force.generation, state: await ask("/v1/state") };
      }
      // A rewind while the answer was on its way.
      if (last !== known) continue;
      let { events } = live.events;
      if (known !== null) {
        const [first, ...later] = events;
        // Another daemon, whose events have begun again.
        if (first?.sequence !== known.sequence || first.time_ms !== known.time_ms) {
          last = null;
          continue;
        }
        events = later;
      }
      last = events.at(-1) ?? known;
      seen({ ...live, events: { ...live.events, events }, restarted: known === null, document: document.state });
    } catch (error) {
      if (!failed(error)) return;
    }
    // After a pause of the page no reading follows at once: rates of a short time say little.
    next = Math.max(next + PERIOD_MS, performance.now() + PERIOD_MS / 2);
    await new Promise((resume) => setTimeout(resume, next - performance.now()));
  }
}

/** Has the next reading begin again, with all events. */
export const rewind = () => (last = null);

/** Totals of the last hour. */
export const earlier = () => ask("/v1/history");

/** Explanations of drop reasons, ring faults and reasons for a path. */
export const reasons = () => ask("/v1/reasons");
