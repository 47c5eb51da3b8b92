// Two arms, of one run or of two, on the same probes: who is right where, and the cases behind each number.

import { copyLink, tell } from "./copying.js";
import { byId, el, show } from "./dom.js";
import { number, plural, whole } from "./formats.js";
import { addressOf, go, panelWords, placeNow } from "./place.js";
import { ask, inWords } from "./source.js";

const PAIRS_PER_PAGE = 50;
const OUTCOMES = [
  ["only_first", "only the first is right"],
  ["only_second", "only the second is right"],
  ["both", "both right"],
  ["neither", "neither right"],
  ["other_answer", "different answers"],
];

// Without a choice: two runs under their first common arm, or the first two arms of one.
export function comparedOf(place, runs) {
  const first = Number(place.first ?? 0);
  const second = Number(place.second ?? (runs.length > 1 ? 1 : 0));
  const arm = place.arm ?? runs[first].arms.find((name) => first === second || runs[second].arms.includes(name)) ?? runs[first].arms[0];
  const others = runs[second].arms;
  const other = place.other ?? (first === second ? others.find((name) => name !== arm) : others.includes(arm) ? arm : others[0]) ?? arm;
  return { first, second, arm, other, outcome: place.outcome ?? "only_first" };
}

export async function comparePage(place, runs, still) {
  const chosen = comparedOf(place, runs);
  const offset = Number(place.offset ?? 0);
  show(
    el("h1", null, "Compare"),
    el("div", { class: "line" },
      side("First", "first", "arm", chosen, runs), el("span", null, "with"), side("Second", "second", "other", chosen, runs),
      el("span", { class: "grow" }), el("button", { class: "do", type: "button", onclick: copyLink }, "Copy link")),
    el("p", { class: "message", id: "told", role: "status" }),
    el("div", { id: "list" }),
  );
  if (runs[chosen.first].probe_digest !== runs[chosen.second].probe_digest) tell("these runs are over different probe files; only probes of the same name are compared");
  try {
    const found = await ask("compare", { ...chosen, offset, limit: PAIRS_PER_PAGE });
    if (still()) byId("list").replaceChildren(...outcome(found, chosen, runs, offset));
  } catch (error) {
    if (still()) tell(inWords(error), true);
  }
}

function side(words, runKey, armKey, chosen, runs) {
  const change = (key) => (event) => go({ ...placeNow(), ...chosen, [key]: event.target.value, ...(key === runKey ? { [armKey]: "" } : {}), offset: "" });
  const options = (values, now) => values.map(([value, text]) => el("option", { value, selected: String(value) === String(now) }, text));
  return [
    el("label", null, `${words} `, el("select", { id: runKey, onchange: change(runKey), "aria-label": `${words} run` }, options(runs.map(({ name, model }, i) => [i, `${name} (${model})`]), chosen[runKey]))),
    el("select", { id: armKey, onchange: change(armKey), "aria-label": `${words} arm` }, options(runs[chosen[runKey]].arms.map((name) => [name, name]), chosen[armKey])),
  ];
}

function outcome(found, chosen, runs, offset) {
  const both = [`${runs[chosen.first].name} · ${chosen.arm}`, `${runs[chosen.second].name} · ${chosen.other}`];
  const cards = OUTCOMES.map(([name, words]) => el("li", null, el("button", { class: "do", type: "button", "data-outcome": name, "aria-pressed": String(name === found.outcome),
    onclick: () => go({ ...placeNow(), ...chosen, outcome: name, offset: "" }) }, el("b", null, whole(found.counts[name])), words)));
  const change = (key) => (found[key][0] === null || found[key][1] === null ? "–" : `${number(found[key][0])} → ${number(found[key][1])}`);
  const panels = panelWords([{ run: chosen.first, arm: chosen.arm }, { run: chosen.second, arm: chosen.other }]);
  const lines = found.rows.map((row, i) => el("tr", null,
    el("th", { scope: "row" }, el("a", { href: addressOf({ page: "case", run: chosen.first, probe: row.probe_id, view: row.view, panels, from: "compare", ...chosen, at: offset + i }) }, row.probe_id)),
    el("td", { title: row.question }, row.question), el("td", null, row.label),
    sided(row.first), sided(row.second),
    el("td", { class: "n" }, `${number(row.first.margin ?? row.first.score, 2)} → ${number(row.second.margin ?? row.second.score, 2)}`),
    el("td", { class: "n" }, `${number(row.first.ecr, 2)} → ${number(row.second.ecr, 2)}`)));
  const step = (to, words) => el("button", { class: "do", type: "button", disabled: to < 0 || to >= found.total, onclick: () => go({ ...placeNow(), ...chosen, offset: to || "" }) }, words);
  return [
    el("p", { class: "facts" }, `${plural(found.pairs, "probe")} answered by both · accuracy `, el("b", null, change("accuracy")), " · mean coverage ", el("b", null, change("coverage"))),
    el("ul", { class: "cross" }, cards),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Pairs" }, el("table", { class: "rows" },
      el("thead", null, el("tr", null, ["probe", "question", "label", both[0], both[1], "margin", "coverage"].map((words, i) => el("th", { scope: "col", class: i > 4 ? "n" : null }, el("span", { class: "unsorted" }, words))))),
      el("tbody", null, lines))),
    el("div", { class: "line" }, step(offset - PAIRS_PER_PAGE, "← Earlier"), el("span", null, found.total ? `${whole(offset + 1)} to ${whole(offset + found.rows.length)} of ${whole(found.total)}, the largest change first` : "No pair has this outcome."), step(offset + PAIRS_PER_PAGE, "Later →")),
  ];
}

function sided({ predicted, correct }) {
  return el("td", { class: correct ? "right" : "wrong", title: predicted }, `${predicted || "nothing"}${correct ? " ✓" : " ✗"}`);
}
