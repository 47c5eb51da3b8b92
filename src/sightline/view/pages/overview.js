// The first page: what the numbers come to, and from any of them to the rows behind it.

import { byId, el, say, show } from "./dom.js";
import { plural } from "./formats.js";
import { frontierChart } from "./frontier.js";
import { addressOf, placeNow } from "./place.js";
import { ask, bundled, inWords } from "./source.js";

const AGAIN_MS = 1500;
let waiting = 0;
let drawn = null;

export async function overviewPage(place, runs, still, expected) {
  clearTimeout(waiting);
  const run = Number(place.run ?? 0);
  const found = await (expected ?? ask("overview", { run }));
  if (!still()) return;
  const facts = runs[run];
  show(
    el("h1", null, facts.name),
    el("p", { class: "facts" }, el("b", null, facts.model), ` · ${plural(facts.rows, "row")} · ${plural(facts.probes, "probe")} on ${plural(facts.images, "image")} · ${plural(facts.arms.length, "arm")} · ${facts.device} · ${facts.created}`),
    el("div", { class: "lead", id: "lead" }),
    el("div", { id: "frontier" }),
    el("div", { id: "numbers" }),
    el("div", { id: "notes" }),
  );
  draw(found, run);
  wait(found, run);
}

// Intervals come later, into the room that was kept for them.
function wait(found, run) {
  if (found.state !== "computing" || bundled()) return;
  waiting = setTimeout(async () => {
    const now = placeNow();
    if (now.page !== "overview" || Number(now.run ?? 0) !== run) return;
    try {
      const again = await ask("overview", { run });
      if (again.state !== found.state || again.version !== found.version) {
        draw(again, run);
        if (again.state === "done") say("Headline and intervals are there.");
      }
      wait(again, run);
    } catch (error) {
      byId("notes")?.replaceChildren(el("p", { class: "note" }, inWords(error)));
    }
  }, AGAIN_MS);
}

// A telephone that is turned gets the frontier of its new width.
addEventListener("resize", () => {
  const holder = byId("frontier");
  if (holder && drawn) holder.replaceChildren(...[frontierChart(drawn.found.points, drawn.found.axes ?? [], drawn.run)].filter(Boolean));
});

function draw(found, run) {
  drawn = { found, run };
  const lead = byId("lead");
  if (found.state === "done") lead.replaceChildren(...found.headline.map((words) => el("p", { class: "headline" }, words)));
  else if (found.state === "failed") lead.replaceChildren(el("p", { class: "note" }, `No intervals: ${found.why}`));
  else lead.replaceChildren(el("p", { class: "waiting" }, "Values are there; their intervals and the headline are being computed beside …"));
  lead.dataset.state = found.state;
  byId("frontier").replaceChildren(...[frontierChart(found.points, found.axes ?? [], run)].filter(Boolean));
  byId("numbers").replaceChildren(...(found.table ? [numbers(found.table, run, found)] : []));
  byId("notes").replaceChildren(...(found.notes ?? []).map((words) => el("p", { class: "note" }, words)));
}

function numbers(table, run, found) {
  const head = table.columns.map(({ title, help }, i) => el("th", { scope: "col", class: i ? "n" : null, title: help || null }, el("span", { class: "unsorted" }, title)));
  const bodies = table.panels.flatMap(({ heading, rows }) => [
    heading ? el("tbody", { class: "heading" }, el("tr", null, el("th", { scope: "rowgroup", colspan: table.columns.length }, el("span", null, heading)))) : null,
    el("tbody", null, rows.map((row) => el("tr", null, row.map((each, i) => numbersCell(each, i, table.columns[i], run))))),
  ]);
  const caption = found.state === "done" ? `${table.caption} ${found.draws} draws.` : table.caption;
  return el("section", { "aria-label": table.title },
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": table.title },
      el("table", { id: "table-main" }, el("caption", null, table.title), el("thead", null, el("tr", null, head)), bodies)),
    el("p", { class: "legend" }, "Every number opens the rows behind it. ", caption));
}

function numbersCell(each, place, column, run) {
  const link = el("a", { href: addressOf({ page: "rows", run, ...each.behind }) }, each.text || "–");
  if (!place) return el("th", { scope: "row", class: "numbers-cell" }, link);
  const range = each.interval || (each.text && column.key !== "keep" ? "0.000–0.000" : "");
  return el("td", { class: "n numbers-cell" }, link, range ? el("span", { class: each.interval ? "range" : "range later" }, ` ${range}`) : null);
}
