// To the clipboard, with a word about it.

import { byId, say } from "./dom.js";
import { inWords } from "./source.js";

export function tell(words, failed = false) {
  const line = byId("told");
  if (line) {
    line.textContent = words;
    line.classList.toggle("failed", failed);
  }
  say(words);
}

export async function copy(make, what) {
  try {
    const text = await make();
    await navigator.clipboard.writeText(text);
    tell(`${what} copied`);
  } catch (error) {
    tell(inWords(error), true);
  }
}

export function copyLink() {
  return copy(async () => location.href, "Link");
}
