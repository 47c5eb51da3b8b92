// Keys, listed once: what is shown is what is heard.

import { byId, el } from "./dom.js";

const bound = new Map();

export const KEYS = [
  ["ArrowRight", "→ or n", "next case"],
  ["n", "", ""],
  ["ArrowLeft", "← or p", "previous case"],
  ["p", "", ""],
  ["b", "b", "blink: the first two arms in one place, one press each way"],
  ["m", "m", "cells on and off"],
  ["e", "e", "evidence boxes on and off"],
  ["s", "s", "boxes that selectors see on and off"],
  ["z", "z", "zoom to the evidence and back"],
  ["+", "+", "nearer"],
  ["-", "-", "farther"],
  ["0", "0", "whole image"],
  ["/", "/", "to the query box"],
  ["o", "o", "overview"],
  ["?", "?", "these keys"],
];

export function bindKeys(actions) {
  bound.clear();
  for (const [key, action] of Object.entries(actions)) bound.set(key, action);
}

export function listen(always) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(input|select|textarea)$/i.test(event.target.tagName)) return;
    if (event.key === "?") return event.preventDefault(), showKeys();
    const action = bound.get(event.key) ?? always[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

export function showKeys() {
  const dialog = byId("keys");
  if (dialog.open) return dialog.close();
  dialog.replaceChildren(el("h2", { id: "keys-title" }, "Keys"),
    el("table", null, el("tbody", null, KEYS.filter(([, shown]) => shown).map(([, shown, words]) => el("tr", null, el("td", null, el("kbd", null, shown)), el("td", null, words))),
      el("tr", null, el("td", null, "wheel, two fingers"), el("td", null, "zoom where the pointer is")), el("tr", null, el("td", null, "drag"), el("td", null, "move all pictures together")))),
    el("p", null, el("button", { class: "do", type: "button", onclick: () => dialog.close() }, "Close")));
  dialog.showModal();
}
