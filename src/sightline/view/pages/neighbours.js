// The list that a case was opened from, and the cases before and behind it: fetched while somebody still looks.

import { byId } from "./dom.js";
import { whole } from "./formats.js";
import { go, panelsOf, placeNow } from "./place.js";
import { ask, askOnce, imageAddress } from "./source.js";

let around = { before: null, behind: null };

function listOf(place) {
  if (place.from === "compare") {
    const { first, second, arm, other, outcome } = place;
    return ["compare", { first, second, arm, other, outcome }];
  }
  return ["rows", { run: place.run, query: place.query, sort: place.sort, down: place.down, columns: "probe_id,view,arm", cases: "1" }];
}

// Where the case stands in its list: three of it, with the case among them.
async function found(place) {
  const [name, asked] = listOf(place);
  const near = name === "rows" ? { near: place.probe, near_view: place.view } : { offset: Math.max(0, Number(place.at ?? 0) - 1), limit: 3 };
  const page = await ask(name, { ...asked, ...near });
  const here = page.rows.findIndex((row) => row.probe_id === place.probe && (!place.view || row.view === place.view));
  const from = page.offset ?? near.offset;
  return here < 0 ? null : { rows: page.rows, here, at: from + here, total: page.total };
}

export async function neighbours(place) {
  around = { before: null, behind: null };
  const list = await found(place).catch(() => null);
  if (!list || placeNow().probe !== place.probe) return;
  const step = (by) => {
    const row = list.rows[list.here + by];
    return row ? { ...place, probe: row.probe_id, view: row.view, at: String(list.at + by), zoom: "" } : null;
  };
  around = { before: step(-1), behind: step(1) };
  const position = byId("position");
  if (!position) return;
  position.textContent = `${whole(list.at + 1)} of ${whole(list.total)}`;
  byId("previous").disabled = !around.before;
  byId("next").disabled = !around.behind;
  document.body.dataset.at = list.at;
  if (around.behind) fetchAhead(around.behind);
}

async function fetchAhead(place) {
  const canvas = document.querySelector("#panels canvas");
  const runs = new Map();
  for (const { run, arm } of place.panels ? panelsOf(place.panels) : [...document.querySelectorAll("figure[data-arm]")].map((figure) => ({ run: Number(place.run ?? 0), arm: figure.dataset.arm }))) {
    runs.set(run, [...(runs.get(run) ?? []), arm]);
  }
  if (!runs.has(Number(place.run ?? 0))) runs.set(Number(place.run ?? 0), []);
  for (const [run, arms] of runs) {
    const next = await askOnce("case", { run, probe: place.probe, view: place.view, arms: arms.join("|") }).catch(() => null);
    for (const [key, image] of Object.entries(next?.images ?? {})) {
      if (canvas) new Image().src = imageAddress({ run, key, view: next.view, source: image.source });
    }
  }
}

// The arms, the boxes and the list stay as they are.
export function openNeighbour(by) {
  const next = by < 0 ? around.before : around.behind;
  if (!next) return;
  performance.mark("next-case");
  const { panels, blink } = placeNow();
  go({ ...next, panels, blink });
}
