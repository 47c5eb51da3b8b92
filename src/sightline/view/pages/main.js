// From the address to a page, and what is on every page: where one is, which run, whether it is still growing.

import { casePage } from "./case.js";
import { comparePage } from "./compare.js";
import { byId, el, show } from "./dom.js";
import { plural } from "./formats.js";
import { bindKeys, listen, showKeys } from "./keys.js";
import { overviewPage } from "./overview.js";
import { addressOf, go, placeNow } from "./place.js";
import { rowsPage } from "./rows.js";
import { ask, bundled, inWords } from "./source.js";

const PAGES = { overview: overviewPage, rows: rowsPage, case: casePage, compare: comparePage };
const LOOK_MS = 4000;
let runs = [];
let opened = 0;
let expected = null;

async function open() {
  const place = placeNow();
  const page = PAGES[place.page] ?? overviewPage;
  const mine = (opened += 1);
  const still = () => mine === opened; // whoever went on meanwhile does not want this page any more
  bindKeys({});
  try {
    if (!runs.length) {
      if (page === overviewPage) expected = ask("overview", { run: place.run ?? 0 }); // both at once: nobody waits twice
      ({ runs } = await ask("runs"));
    }
    if (!runs[Number(place.run ?? 0)]) throw new Error(`there is no run ${place.run}`);
    bar(place);
    document.title = `${place.page === "case" ? place.probe : place.page} · ${runs[Number(place.run ?? 0)].name} · Sightline`;
    await page(place, runs, still, expected);
    expected = null;
    if (still()) performance.mark("page-shown");
  } catch (error) {
    if (still()) show(el("p", { class: "note", role: "alert" }, inWords(error)), el("p", null, el("a", { href: "#/overview" }, "To the overview")));
  }
}

function bar(place) {
  const run = Number(place.run ?? 0);
  const link = (page, words) => el("a", { href: addressOf({ page, run: run || "" }), "aria-current": place.page === page ? "page" : null }, words);
  const choose = el("select", { "aria-label": "Run", onchange: (event) => go({ page: place.page === "case" ? "overview" : place.page, run: event.target.value }) },
    runs.map(({ name }, i) => el("option", { value: i, selected: i === run }, name)));
  byId("bar").replaceChildren(
    el("strong", null, "Sightline"), runs.length > 1 ? choose : el("span", null, runs[0].name),
    link("overview", "Overview"), link("rows", "Rows"), link("compare", "Compare"),
    el("span", { class: "state", id: "state" }, stateWords(runs[run])),
    el("button", { class: "do", type: "button", onclick: showKeys, "aria-label": "Keys" }, "?"));
}

function stateWords({ missing, shards }) {
  return missing ? `${plural(shards - missing, "file")} of ${shards}, growing` : "finished";
}

// A run that is being written: the bar follows it, the page itself only where nothing would move under a reader.
async function look() {
  if (!document.hidden) {
    try {
      const before = runs.map(({ version }) => version).join();
      ({ runs } = await ask("runs"));
      const place = placeNow();
      const state = byId("state");
      if (state) state.textContent = stateWords(runs[Number(place.run ?? 0)]);
      if (before !== runs.map(({ version }) => version).join() && ["overview", ""].includes(place.page)) open();
    } catch {
      const state = byId("state");
      if (state) state.textContent = "server stopped";
    }
  }
  setTimeout(look, LOOK_MS);
}

listen({
  "/": () => { if (byId("query")) byId("query").focus(); else { go({ page: "rows", run: placeNow().run }); setTimeout(() => byId("query")?.focus(), 400); } },
  o: () => go({ page: "overview", run: placeNow().run }),
});
addEventListener("hashchange", open);
open();
if (!bundled()) setTimeout(look, LOOK_MS);
