// The form for the token, which stands in place of the figures while the daemon asks for it.

import { at, text } from "./dom.js";
import { use, useAddress } from "./feed.js";

/** Shows the form, with the reason. */
export function askForToken(reason) {
  at("figures").hidden = true;
  at("login").hidden = false;
  text(at("login-error"), reason);
  at("token").focus();
}

/** Shows the figures. */
export function showFigures() {
  at("login").hidden = true;
  at("figures").hidden = false;
}

/** Calls `start()` each time that a token came while the form was shown; the token is then in use. */
export function onToken(start) {
  at("login").addEventListener("submit", (event) => {
    event.preventDefault();
    use(at("token").value.trim());
    at("token").value = "";
    start();
  });
  // An address with a token, opened in this tab, loads no page.
  window.addEventListener("hashchange", () => {
    if (useAddress() && !at("login").hidden) start();
  });
}
