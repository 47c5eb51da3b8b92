// In a bundle: the answers that the page itself holds, in the words in which a server would give them.

const bundle = JSON.parse(document.getElementById("bundle").textContent);

function sortedRows(rows, { sort, down }) {
  if (!sort) return rows;
  const missing = (value) => value === null || value === undefined;
  const order = (a, b) => (typeof a === "string" ? (a < b ? -1 : a > b ? 1 : 0) : a - b);
  return [...rows].sort((a, b) => {
    if (missing(a[sort]) || missing(b[sort])) return missing(a[sort]) - missing(b[sort]);
    return down ? order(b[sort], a[sort]) : order(a[sort], b[sort]);
  });
}

// An arm is all of a query that a fixed list can follow: what the overview's numbers ask for.
function armOf(query) {
  return /^arm == ("(?:[^"\\]|\\.)*")/.exec(query ?? "")?.[1];
}

function heldRows(given) {
  let rows = bundle.rows[Number(given.run ?? 0)];
  const arm = armOf(given.query);
  if (arm) rows = rows.filter((row) => row.arm === JSON.parse(arm));
  rows = sortedRows(rows, given);
  if (given.cases) rows = rows.filter((row, i) => rows.findIndex((other) => other.probe_id === row.probe_id && other.view === row.view) === i);
  let offset = Number(given.offset ?? 0), limit = Number(given.limit ?? 50);
  if (given.near) {
    const here = rows.findIndex((row) => row.probe_id === given.near);
    [offset, limit] = [Math.max(0, here - 1), here > 0 ? 3 : 2];
  }
  const columns = given.columns ? given.columns.split(",") : Object.keys(rows[0] ?? {});
  return { total: rows.length, offset, columns, version: 0, rows: rows.slice(offset, offset + limit) };
}

function heldCase({ run, probe, arms }) {
  const found = bundle.cases[Number(run ?? 0)][probe];
  if (!found) throw new Error(`this bundle does not hold the case ${probe}`);
  const wanted = (arms ?? "").split("|");
  return { ...found, panels: wanted.map((arm) => found.panels.find((panel) => panel.arm === arm)).filter(Boolean) };
}

function heldComparison(given) {
  const same = (one) => ["first", "second", "arm", "other", "outcome"].every((key) => String(one[key]) === String(given[key]));
  const found = bundle.compared.find(same);
  if (!found) throw new Error("this bundle holds comparisons of the same arm in two runs, and of full with others in one");
  const offset = Number(given.offset ?? 0);
  return { ...found, rows: found.rows.slice(offset, offset + Number(given.limit ?? 50)) };
}

const HELD = {
  runs: () => bundle.runs,
  overview: ({ run }) => bundle.overviews[Number(run ?? 0)],
  rows: heldRows,
  case: heldCase,
  keepers: ({ run, probe, key }) => bundle.keepers[Number(run ?? 0)][`${probe} ${key}`],
  compare: heldComparison,
};

globalThis.sightlineBundle = {
  words: bundle.words,
  answer: async (name, given) => HELD[name](given),
  image: ({ run, key, detail }) => bundle.images[Number(run ?? 0)][detail === undefined ? key : `${key} ${detail}`],
};
