// Rows: a query, an order, a page of them; and ways to take them along.

import { copy, copyLink, tell } from "./copying.js";
import { byId, el, say, show } from "./dom.js";
import { filters } from "./filters.js";
import { cell, plural, whole } from "./formats.js";
import { addressOf, go, placeNow } from "./place.js";
import { forgetView, savedViews, saveView } from "./saved.js";
import { ask, bundled, imageAddress, inWords, takeAddress, takeAlong } from "./source.js";

const PER_PAGE = 50;
const BESIDE = ["probe_id", "question", "target_text", "accepted", "image_key"]; // in the first two cells
const HINT = 'arm == "target:0.3" and correct and ecr < 0.1';

export async function rowsPage(place, runs, still) {
  const run = Number(place.run ?? 0);
  const offset = Number(place.offset ?? 0);
  const asked = { run, query: place.query, sort: place.sort, down: place.down };
  show(
    el("h1", null, "Rows"),
    bundled() ? el("p", { class: "facts" }, bundled().words, place.query ? " Of a query a bundle follows the arm alone." : "") : queryForm(place, runs[run]),
    el("p", { class: "message", id: "told", role: "status" }),
    el("div", { id: "list", "aria-live": "off" }),
  );
  try {
    const found = await ask("rows", { ...asked, offset, limit: PER_PAGE });
    if (!still()) return;
    byId("list").replaceChildren(tools(found, place, asked), table(found, place, run, runs), pages(found, place));
    say(`${plural(found.total, "row")} found`);
  } catch (error) {
    if (!still()) return;
    tell(inWords(error), true);
    byId("query")?.setAttribute("aria-invalid", "true");
  }
}

function queryForm(place, facts) {
  const box = el("input", { id: "query", name: "query", value: place.query ?? "", placeholder: HINT, autocomplete: "off", spellcheck: "false", "aria-describedby": "told" });
  const send = (event) => {
    event.preventDefault();
    go({ ...placeNow(), query: box.value.trim(), offset: "" });
  };
  return el("form", { onsubmit: send, role: "search" },
    el("label", { class: "unseen", for: "query" }, "Query over rows"),
    el("div", { class: "ask" }, box, el("button", { class: "do", type: "submit" }, "Show"),
      el("button", { class: "do", type: "button", onclick: () => go({ page: "rows", run: place.run }) }, "All")),
    filters(place, facts),
    savedList(),
    el("details", null, el("summary", null, "Columns and language"),
      el("p", null, "Compare columns with numbers or quoted texts, and join comparisons with and, or, not and brackets: ", el("code", null, 'selector in ("random", "grid") and not correct and correct_full'), "; ", el("code", null, '"total" in target_text'), "; ", el("code", null, "ecr is None"), "."),
      el("ul", { class: "columns-list" }, facts.columns.map(({ name, doc, kind }) => el("li", null, el("code", null, name), ` (${kind}) ${doc}`)))));
}

function savedList() {
  const keep = () => {
    const name = byId("view-name").value.trim();
    if (!name) return tell("give the view a name", true);
    saveView(name, location.hash);
    refill();
    tell(`saved as ${name}`);
  };
  const refill = () => byId("saved").replaceChildren(el("option", { value: "" }, "Saved views"), ...Object.keys(savedViews()).map((name) => el("option", { value: name }, name)));
  const line = el("div", { class: "line" },
    el("label", { class: "unseen", for: "saved" }, "Saved views"),
    el("select", { id: "saved", onchange: (event) => { const address = savedViews()[event.target.value]; if (address) location.hash = address; } }),
    el("label", { class: "unseen", for: "view-name" }, "Name of the view"),
    el("input", { id: "view-name", placeholder: "name", size: "12" }),
    el("button", { class: "do", type: "button", onclick: keep }, "Save view"),
    el("button", { class: "do", type: "button", onclick: () => { const { value } = byId("saved"); if (value) { forgetView(value); refill(); } else tell("choose a saved view to forget", true); } }, "Forget"));
  queueMicrotask(refill);
  return line;
}

function tools(found, place, asked) {
  const take = (format) => () => takeAlong({ ...asked, format });
  return el("div", { class: "line" }, el("b", { id: "total" }, plural(found.total, "row")),
    el("span", { class: "grow" }),
    bundled() ? null : [
      el("button", { class: "do", type: "button", onclick: () => copy(take("csv"), "CSV") }, "Copy as CSV"),
      el("button", { class: "do", type: "button", onclick: () => copy(take("probes"), "Probe list") }, "Copy as probe list"),
      el("a", { href: takeAddress({ ...asked, format: "label-studio" }), download: "tasks.json" }, "Label Studio tasks"),
    ],
    el("button", { class: "do", type: "button", onclick: copyLink }, "Copy link"));
}

function table(found, place, run, runs) {
  const sorted = (name) => (place.sort === name ? (place.down ? "descending" : "ascending") : "none");
  const turn = (name) => () => go({ ...placeNow(), sort: name, down: place.sort === name && !place.down ? "1" : "", offset: "" });
  const docs = Object.fromEntries(runs[run].columns.map(({ name, doc }) => [name, doc]));
  const kinds = Object.fromEntries(runs[run].columns.map(({ name, kind }) => [name, kind]));
  const columns = found.columns.filter((name) => !BESIDE.includes(name));
  const numeric = (name) => found.rows.some((row) => typeof row[name] === "number");
  const head = columns.map((name) => el("th", { scope: "col", "aria-sort": sorted(name), class: numeric(name) ? "n" : null },
    el("button", { type: "button", title: docs[name] || null, onclick: turn(name) }, name)));
  const first = ["probe_id", "question"].map((name) => el("th", { scope: "col", "aria-sort": sorted(name) },
    el("button", { type: "button", title: docs[name] || null, onclick: turn(name) }, name)));
  const body = found.rows.map((row) => el("tr", null, opening(row, place, run), asked(row),
    columns.map((name) => el("td", { class: numeric(name) ? "n" : row[name] === false && name === "correct" ? "wrong" : null, title: typeof row[name] === "string" ? row[name] : null }, cell(row[name], kinds[name])))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Rows" },
    el("table", { class: "rows" }, el("thead", null, el("tr", null, first, head)), el("tbody", null, body)));
}

function opening(row, place, run) {
  const picture = row.image_key ? imageAddress({ run, key: row.image_key, source: "thumbnail" }) : null;
  return el("th", { scope: "row" }, el("a", { href: addressOf(caseOf(row, place, run)), title: row.probe_id },
    picture ? el("img", { class: "thumbnail", src: picture, alt: "", loading: "lazy" }) : null, row.probe_id));
}

// What was asked, and below it what counts as right, or which text was asked about.
function asked(row) {
  const [words, text] = row.accepted ? ["accepted", row.accepted] : ["queried", row.target_text];
  return el("td", { class: "asked", title: row.question || null }, row.question || "–", text ? el("span", null, `${words}: “${text}”`) : null);
}

// A row opens its probe; the list goes along, so that the next case is the next of it.
function caseOf(row, place, run) {
  return { page: "case", run, probe: row.probe_id, view: row.view, arm: row.arm, query: place.query, sort: place.sort, down: place.down };
}

function pages(found, place) {
  const step = (to, words) => el("button", { class: "do", type: "button", disabled: to < 0 || to >= found.total, onclick: () => go({ ...placeNow(), offset: to || "" }) }, words);
  const last = Math.min(found.total, found.offset + found.rows.length);
  return el("div", { class: "line" }, step(found.offset - PER_PAGE, "← Earlier"),
    el("span", null, found.total ? `${whole(found.offset + 1)} to ${whole(last)} of ${whole(found.total)}` : "No row fits. Change the query, or show all."),
    step(found.offset + PER_PAGE, "Later →"));
}
