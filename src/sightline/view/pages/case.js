// One case: a question about an image, and what some arms kept of it, side by side under one zoom.

import { maskOf, cellsOf, ranked, scoresOf } from "./bits.js";
import { copy, copyLink } from "./copying.js";
import { byId, el, say, show } from "./dom.js";
import { cell, number, plural, whole } from "./formats.js";
import { bindKeys } from "./keys.js";
import { neighbours, openNeighbour } from "./neighbours.js";
import { Picture } from "./picture.js";
import { addressOf, go, note, panelsOf, panelWords, placeNow } from "./place.js";
import { countAt, replayed } from "./replay.js";
import { askOnce, bundled, imageAddress, takeAlong } from "./source.js";
import { attachZoom, Zoom } from "./zoom.js";

const USUAL = 4;
const seen = { mask: true, regions: true, boxes: false };
let current = null;

// Full, the arm that was clicked, then one of every other method, none with an intervention.
export function usualPanels(place, runs) {
  const run = Number(place.run ?? 0);
  const plain = runs[run].arms.filter((arm) => !arm.includes("+"));
  const full = plain.filter((arm) => arm === "full");
  const clicked = place.arm && !place.from ? [place.arm] : [];
  const methods = new Set([...full, ...clicked].map((arm) => arm.split(":")[0]));
  const firsts = plain.filter((arm) => !methods.has(arm.split(":")[0]) && methods.add(arm.split(":")[0]));
  const arms = [...new Set([...full, ...clicked, ...firsts, ...plain])].slice(0, USUAL);
  return arms.map((arm) => ({ run, arm }));
}

export async function casePage(place, runs, still) {
  const panels = place.panels ? panelsOf(place.panels) : usualPanels(place, runs);
  const cases = await casesOf(place, panels);
  if (!still()) return;
  const zoom = new Zoom(() => drawAll());
  const main = Number(place.run ?? 0);
  const found = cases.get(main) ?? cases.values().next().value;
  current = { place, runs, panels, cases, zoom, found, pictures: [], blinking: place.blink === "1" };
  const around = neighbours(place);
  show(
    el("div", { class: "line" },
      el("button", { class: "do", type: "button", id: "previous", disabled: true, onclick: () => openNeighbour(-1) }, "← Previous"),
      el("button", { class: "do", type: "button", id: "next", disabled: true, onclick: () => openNeighbour(1) }, "Next →"),
      el("span", { id: "position", class: "found" }, " "),
      el("span", { class: "grow" }),
      bundled() ? null : el("button", { class: "do", type: "button", onclick: () => copy(() => takeAlong({ run: main, probe: found.probe, view: found.view, format: "label-studio" }), "Label Studio task") }, "Make this a Label Studio task"),
      el("button", { class: "do", type: "button", onclick: copyLink }, "Copy link")),
    el("p", { class: "question", id: "question" }, found.question ?? found.probe),
    el("p", { class: "facts" }, truth(found), ` · probe ${found.probe}`, found.kind ? ` · ${found.kind}` : "", found.view !== "orig" ? ` · view ${found.view}` : ""),
    toolbar(found),
    el("div", { class: "panels-case", id: "panels" }),
    el("p", { class: "hover", id: "hover" }, "Point at a cell: its token, score and rank where they are stored, and which arms keep it."),
    el("p", { class: "message", id: "told", role: "status" }),
    legend(found),
    armTable(found, main),
  );
  byId("main").classList.toggle("blinking", current.blinking);
  buildPanels();
  zoom.read(place.zoom);
  bindKeys({
    ArrowRight: () => openNeighbour(1), n: () => openNeighbour(1), ArrowLeft: () => openNeighbour(-1), p: () => openNeighbour(-1),
    b: blink, m: () => toggle("mask"), e: () => toggle("regions"), s: () => toggle("boxes"), z: toEvidence,
    Escape: () => current.blinking && stopBlinking(), "+": () => zoom.by(1.5), "-": () => zoom.by(1 / 1.5), 0: () => zoom.set(1, 0.5, 0.5),
  });
  await around;
}

// One question per run whose arms are shown.
export async function casesOf(place, panels) {
  const runs = [...new Set([Number(place.run ?? 0), ...panels.map(({ run }) => run)])];
  const found = await Promise.all(runs.map((run) => askOnce("case", {
    run, probe: place.probe, view: place.view, arms: panels.filter((panel) => panel.run === run).map(({ arm }) => arm).join("|"),
  })));
  return new Map(runs.map((run, i) => [run, found[i]]));
}

function truth(found) {
  const wanted = found.answers?.length ? [...new Set(found.answers)].map((words) => `“${words}”`).join(", ") : found.label;
  return [found.answers?.length ? "accepted: " : "true answer: ", el("b", null, wanted)];
}

function toolbar(found) {
  const press = (id, words, key, on, action) => el("button", { class: "do", type: "button", id, "aria-pressed": String(on), onclick: action }, words, " ", el("kbd", null, key));
  const { zoom } = current;
  return [
    armChips(),
    el("div", { class: "line" },
      press("blink", "Blink", "b", current.blinking, blink), el("button", { class: "do", type: "button", id: "blink-end", hidden: !current.blinking, onclick: stopBlinking }, "Side by side again ", el("kbd", null, "Esc")), press("mask", "Cells", "m", seen.mask, () => toggle("mask")),
      press("regions", "Evidence", "e", seen.regions, () => toggle("regions")), press("boxes", "Selector's boxes", "s", seen.boxes, () => toggle("boxes")),
      el("button", { class: "do", type: "button", onclick: toEvidence, disabled: !found.regions.length }, "To the evidence ", el("kbd", null, "z")),
      el("button", { class: "do", type: "button", onclick: () => zoom.set(1, 0.5, 0.5) }, "Whole image ", el("kbd", null, "0"))),
  ];
}

// Which arms are side by side: those of the run that the case belongs to; others stay as the address says.
function armChips() {
  const { panels, runs, place } = current;
  const run = Number(place.run ?? 0);
  const shown = (arm) => panels.some((panel) => panel.run === run && panel.arm === arm);
  const turn = (arm) => () => {
    const next = shown(arm) ? panels.filter((panel) => panel.run !== run || panel.arm !== arm) : [...panels, { run, arm }];
    if (next.length) go({ ...placeNow(), panels: panelWords(next), zoom: current.zoom.words });
  };
  const chip = (arm) => el("button", { class: "do", type: "button", "aria-pressed": String(shown(arm)), "data-arm": arm, onclick: turn(arm) }, arm);
  const { arms } = runs[run];
  const first = arms.filter((arm, i) => i < 12 || shown(arm));
  const rest = arms.filter((arm) => !first.includes(arm));
  return el("fieldset", { class: "chips" }, el("legend", null, "Side by side"), first.map(chip),
    rest.length ? el("details", null, el("summary", null, `${rest.length} more arms`), el("div", { class: "chips" }, rest.map(chip))) : null);
}

function legend(found) {
  const marks = new Map(found.regions.map((region) => [region.words, region]));
  const mark = ({ words, colour, letter }) => {
    const square = el("i", { class: "swatch" }, letter);
    square.style.background = colour;
    return el("li", null, square, words);
  };
  const pale = Object.values(found.images).some(({ veil }) => veil !== "#000000");
  return el("ul", { class: `key${pale ? " pale" : ""}`, "aria-label": "How to read the pictures" },
    [["kept", "kept cell"], ["merged", "merged into a kept token"], ["dropped", "dropped cell"], ["beyond", "unseen: outside every cell"]].map(([name, words]) => el("li", null, el("i", { class: `swatch ${name}` }), words)),
    found.panels.some((row) => !row.lost) ? [...marks.values()].map(mark) : null,
    found.boxes.length ? el("li", null, el("i", { class: "swatch selector" }), "box that selectors see") : null,
    found.panels.some((row) => row.swapped_box?.length) ? el("li", null, el("i", { class: "swatch elsewhere" }), "answered from here, the wrong place") : null,
    found.panels.some((row) => row.lost?.length) ? el("li", null, el("i", { class: "swatch elsewhere" }), "text that the transcription lost") : null);
}

function buildPanels() {
  const { panels, cases, runs } = current;
  const holder = byId("panels");
  const built = panels.map(({ run, arm }) => {
    const found = cases.get(run);
    const row = found?.panels.find((panel) => panel.arm === arm);
    return row ? panel(found, row, run, new Set(panels.map((one) => one.run)).size > 1 ? runs[run].name : "") : el("div", { class: "panel-case" }, el("h2", null, arm), el("p", { class: "note" }, "no row of this arm for this probe"));
  });
  holder.style.setProperty("--columns", Math.min(built.length, globalThis.innerWidth > 1100 ? (built.length > 4 ? 3 : built.length === 4 ? 4 : built.length) : 2));
  holder.replaceChildren(...built);
}

function panel(found, row, run, runName) {
  const image = found.images[row.image_key];
  const canvas = el("canvas", { role: "img", tabindex: "0", "aria-label": described(row) });
  canvas.style.aspectRatio = `${image.width} / ${image.height}`;
  canvas.style.maxWidth = `calc(78vh * ${image.width / image.height})`;
  const picture = new Picture(canvas, current.zoom);
  const cells = cellsOf(image.cells);
  const n = cells.length / 4;
  const kept = maskOf(row.kept_mask, n);
  picture.state = { cells, kept, lineage: row.lineage_mask ? maskOf(row.lineage_mask, n) : null, replay: null };
  picture.row = row;
  picture.run = run;
  picture.scores = row.scores ? scoresOf(row.scores, n) : null;
  picture.shown = seen;
  picture.regions = found.regions;
  picture.boxes = found.boxes;
  picture.veil = image.veil;
  picture.swapped = row.swapped_box?.length === 4 ? { box: row.swapped_box, text: row.swapped_text } : null;
  picture.lost = row.lost ?? null;
  loadPixels(picture, { run, key: row.image_key, view: found.view, source: image.source }, image);
  attachZoom(canvas, current.zoom, (event) => picture.at(event));
  canvas.addEventListener("pointermove", (event) => hover(picture, event));
  canvas.addEventListener("pointerleave", () => markAll(-1));
  current.pictures.push(picture);
  return el("figure", { class: "panel-case", "data-arm": row.arm },
    el("h2", null, row.arm, runName ? el("span", { class: "run" }, runName) : null), canvas,
    el("figcaption", { class: "facts" }, verdict(row)), slider(picture, image));
}

function described(row) {
  return `${row.arm}: ${row.k_tokens} of ${row.n_tokens} tokens kept, answered ${row.predicted || "nothing"}, ${row.correct ? "right" : "wrong"}${row.ecr === null ? "" : `, coverage ${number(row.ecr, 2)}`}`;
}

function verdict(row) {
  const measure = row.score !== undefined && row.score !== null ? ` · score ${number(row.score, 2)}` : row.margin !== undefined && row.margin !== null ? ` · margin ${number(row.margin, 2)}` : "";
  return [el("span", { class: `${row.correct ? "right" : "wrong"} said-words` }, `${row.predicted || "nothing"} ${row.correct ? "✓" : "✗"}`),
    row.outcome && row.outcome !== "right" ? `${row.outcome.replace("_", " ")}${row.swapped_text ? ` with “${row.swapped_text}”` : ""} · ` : "",
    row.lost ? `${row.lost.length} of ${plural(row.texts, "text")} lost · ` : "",
    `coverage ${number(row.ecr, 2)}${measure} · keeps ${whole(row.k_tokens)} of ${whole(row.n_tokens)}`];
}

// The preview first where it is another file: something is to be seen at once, sharp a moment later.
function loadPixels(picture, address, image) {
  const load = (parameters, done) => new Promise((drawn) => {
    const bitmap = new Image();
    bitmap.onload = () => { done(bitmap); picture.draw(); drawn(); };
    bitmap.src = imageAddress(parameters);
  });
  load(address, (bitmap) => { picture.bitmap = bitmap; picture.canvas.dataset.pixels = bitmap.naturalWidth; })
    .then(() => current.pictures.every((one) => one.bitmap) && performance.mark("case-drawn"));
  if (image.source === "preview") {
    image.details.forEach((box, detail) => load({ run: address.run, key: address.key, detail: String(detail) }, (bitmap) => picture.details.push({ box, bitmap })));
  }
}

// Offered where the run kept the scores, and the method is nothing but the K highest of them.
function slider(picture, image) {
  const { row, scores } = picture;
  if (!scores || row.scores_rule !== "top" || row.intervention !== "none") return null;
  const n = scores.length, byTile = row.budget.endsWith("/tile");
  const words = el("output", null, `K ${whole(row.k_tokens)}, as run`);
  const own = Math.round((1000 * row.k_tokens) / n) / 1000;
  const range = el("input", { type: "range", min: "0.01", max: "1", step: "0.01", value: String(own), "aria-label": `Budget of ${row.arm}, replayed from its stored scores` });
  range.addEventListener("input", () => {
    const keep = Number(range.value);
    picture.state.replay = replayed(scores, keep, image.layout, byTile);
    const k = picture.state.replay.reduce((sum, bit) => sum + bit, 0);
    words.textContent = `K ${whole(k)} at ${number(keep, 2)}, replayed`;
    picture.canvas.dataset.replayed = k;
    picture.draw();
  });
  const back = () => { picture.state.replay = null; range.value = String(own); words.textContent = `K ${whole(row.k_tokens)}, as run`; delete picture.canvas.dataset.replayed; picture.draw(); };
  return el("div", { class: "slider" }, el("span", null, "budget"), range, words, el("button", { class: "do", type: "button", onclick: back }, "as run"));
}

async function hover(picture, event) {
  const token = picture.tokenAt(...picture.at(event));
  markAll(token, picture.row.image_key);
  if (token < 0) return;
  const { row, scores, state } = picture;
  const cells = [...state.cells.subarray(4 * token, 4 * token + 4)].map((value) => number(value, 3)).join(", ");
  const said = [el("b", null, `token ${token}`), ` of ${whole(row.n_tokens)} under ${row.arm} · cell ${cells} · ${state.kept[token] ? "kept" : state.lineage?.[token] ? "merged" : "dropped"}`];
  if (scores) {
    picture.places ??= ranked(scores);
    said.push(` · score ${number(scores[token], 4)}, rank ${picture.places.indexOf(token) + 1}`);
  }
  const line = byId("hover");
  line.replaceChildren(...said);
  try {
    picture.keepers ??= askOnce("keepers", { run: picture.run, probe: current.found.probe, key: row.image_key });
    const { arms } = await picture.keepers;
    picture.masks ??= arms.map(({ arm, kept_mask }) => [arm, maskOf(kept_mask, state.kept.length)]);
    const keep = picture.masks.filter(([, mask]) => mask[token]).map(([arm]) => arm);
    line.replaceChildren(...said, ` · kept by ${keep.length} of ${plural(arms.length, "arm")}${keep.length ? `: ${keep.slice(0, 12).join(", ")}${keep.length > 12 ? " …" : ""}` : ""}`);
  } catch { /* the line says what is known without the other arms */ }
}

function markAll(token, key) {
  for (const picture of current.pictures) {
    const marked = picture.row.image_key === key ? token : -1;
    if (picture.marked !== marked) { picture.marked = marked; picture.draw(); }
  }
}

function armTable(found, run) {
  const { panels } = current;
  const rows = found.answers_of_arms.map((row) => el("tr", null,
    el("th", { scope: "row" }, el("a", { href: addressOf({ ...current.place, panels: panelWords([...panels.filter((one) => one.run !== run || one.arm !== row.arm), { run, arm: row.arm }]) }) }, row.arm)),
    el("td", { class: row.correct ? "right" : "wrong", title: row.predicted }, `${row.predicted || "nothing"}${row.correct ? " ✓" : " ✗"}`),
    [row.margin ?? row.score, row.ecr, row.legibility].map((value) => el("td", { class: "n" }, number(value, 2))),
    el("td", { class: "n" }, cell(row.k_tokens))));
  return el("details", { open: found.answers_of_arms.length <= 12 }, el("summary", null, `All ${plural(rows.length, "answer")} to this question`),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Answers of all arms" }, el("table", { class: "rows" },
      el("thead", null, el("tr", null, ["arm", "answer", "margin or score", "coverage", "legibility", "K"].map((words, i) => el("th", { scope: "col", class: i > 1 ? "n" : null }, el("span", { class: "unsorted" }, words))))),
      el("tbody", null, rows))));
}

function drawAll() {
  if (!current) return;
  for (const picture of current.pictures) picture.draw();
  clearTimeout(current.noted);
  current.noted = setTimeout(() => placeNow().page === "case" && note({ zoom: current.zoom.words }), 250);
}

function toggle(what) {
  seen[what] = !seen[what];
  byId(what)?.setAttribute("aria-pressed", String(seen[what]));
  drawAll();
}

function toEvidence() {
  const { zoom, found } = current;
  if (zoom.scale > 1) return zoom.set(1, 0.5, 0.5);
  if (!found.regions.length) return undefined;
  const boxes = found.regions.map(({ box }) => box);
  return zoom.to([0, 1, 2, 3].map((i) => (i < 2 ? Math.min : Math.max)(...boxes.map((box) => box[i]))));
}

// The first press puts the first two arms in one place; every further one exchanges them.
function blink() {
  const { panels } = current;
  if (panels.length < 2) return say("blinking needs two arms side by side");
  const main = byId("main");
  if (!current.blinking) {
    current.blinking = true;
    main.classList.add("blinking");
    note({ blink: "1" });
  } else {
    const holder = byId("panels");
    const second = holder.children[1];
    holder.insertBefore(second, holder.children[0]);
  }
  byId("blink").setAttribute("aria-pressed", "true");
  byId("blink-end").hidden = false;
  say(byId("panels").children[0].dataset.arm);
  drawAll();
  return undefined;
}

function stopBlinking() {
  current.blinking = false;
  byId("main").classList.remove("blinking");
  note({ blink: "" });
  buildAgain();
}

function buildAgain() {
  current.pictures.length = 0;
  buildPanels();
  byId("blink").setAttribute("aria-pressed", "false");
  byId("blink-end").hidden = true;
  drawAll();
}

addEventListener("resize", drawAll);
