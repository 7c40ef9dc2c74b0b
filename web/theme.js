// Colours: those of the system, or the reader's choice, which this browser keeps.
// A classic script, so the choice holds before the first paint.
"use strict";
(() => {
  const KEY = "shunt-theme";
  const root = document.documentElement;
  const set = (theme) => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    window.dispatchEvent(new Event("themechange"));
  };
  let kept = "";
  try {
    kept = localStorage.getItem(KEY) ?? "";
  } catch {
    // A browser without storage follows the system.
  }
  set(kept);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => set(root.dataset.theme));
  document.addEventListener("DOMContentLoaded", () => {
    const choice = document.getElementById("theme");
    choice.value = kept;
    choice.addEventListener("change", () => {
      set(choice.value);
      try {
        localStorage.setItem(KEY, choice.value);
      } catch {
        // The choice holds until the page is closed.
      }
    });
  });
})();
