// A scored method at another budget, from the scores that were stored: the K highest, ties to the lower index.

import { ranked } from "./bits.js";

export function countAt(keep, n) {
  return Math.min(n, Math.max(1, Math.ceil(n * keep)));
}

// Under a budget of every tile's own each block of the layout chooses for itself.
export function replayed(scores, keep, layout, byTile) {
  const kept = new Uint8Array(scores.length);
  const sizes = byTile ? layout.map(([rows, columns]) => rows * columns) : [scores.length];
  let start = 0;
  for (const size of sizes) {
    for (const place of ranked(scores, start, start + size).slice(0, countAt(keep, size))) kept[place] = 1;
    start += size;
  }
  return kept;
}
