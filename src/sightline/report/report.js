"use strict";
// Sortable tables and the picture gallery. Everything it shows is on the page already; nothing is fetched.
(() => {
  const byId = (id) => document.getElementById(id);

  // ---- tables -------------------------------------------------------------------------------------------------
  // Numbers within names compare as decimals, so that target:0.15 comes before target:0.3; missing values come last.
  const pieces = (text) => text.toLowerCase().match(/\d+(?:\.\d+)?|\D+/g) || [];
  const compare = (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const x = Number(a), y = Number(b);
    if (!Number.isNaN(x) && !Number.isNaN(y)) return x - y;
    const p = pieces(a), q = pieces(b);
    for (let i = 0; i < Math.min(p.length, q.length); i++) {
      const numbers = !Number.isNaN(Number(p[i])) && !Number.isNaN(Number(q[i]));
      const order = numbers ? p[i] - q[i] : p[i].localeCompare(q[i], "en");
      if (order !== 0) return order;
    }
    return p.length - q.length;
  };
  const bodies = (table) => [...table.tBodies].filter((body) => body.className !== "heading");
  for (const button of document.querySelectorAll("thead button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const descending = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentNode.children) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const column = head.cellIndex;
      const key = (row) => row.cells[column].dataset.sort;
      // Panels stay apart: what must not be ranked together is not sorted together.
      for (const body of bodies(head.closest("table"))) {
        const rows = [...body.rows].sort((p, q) => {
          const order = compare(key(p), key(q));
          return descending && key(p) !== "" && key(q) !== "" ? -order : order;
        });
        for (const row of rows) row.cells[0].classList.remove("again");
        body.append(...rows);
      }
    });
  }
  for (const select of document.querySelectorAll("select[data-table]")) {
    const narrow = () => {
      const column = Number(select.dataset.column);
      for (const body of bodies(byId(select.dataset.table))) {
        for (const row of body.rows) row.hidden = select.value !== "" && row.cells[column].textContent !== select.value;
        const heading = body.previousElementSibling;
        if (heading.className === "heading") heading.hidden = [...body.rows].every((row) => row.hidden);
      }
    };
    select.closest("label").hidden = false;
    select.selectedIndex = 0;
    select.addEventListener("change", narrow);
    narrow();
  }

  // ---- folded sections ----------------------------------------------------------------------------------------
  // A link into a closed section opens it; paper shows all of them.
  const unfold = (id) => {
    const target = id && byId(decodeURIComponent(id));
    if (!target) return;
    const closed = [...target.querySelectorAll(":scope > details")];
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") closed.push(node);
    for (const node of closed) node.open = true;
    if (closed.length) target.scrollIntoView();
  };
  addEventListener("hashchange", () => unfold(location.hash.slice(1)));
  document.addEventListener("click", (event) => {
    const link = event.target.closest && event.target.closest('a[href^="#"]');
    if (link) unfold(link.getAttribute("href").slice(1));
  });
  unfold(location.hash.slice(1));
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const node of opened) node.open = true;
  });
  addEventListener("afterprint", () => { for (const node of opened) node.open = false; });

  // ---- pictures -----------------------------------------------------------------------------------------------
  const holder = byId("cases");
  if (!holder) return;
  const data = JSON.parse(holder.textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const fixed = (v, digits = 3) => (v === null ? "–" : v.toFixed(digits).replace("-", "−"));
  const signed = (v) => (v === null ? "–" : (v >= 0 ? "+" : "") + fixed(v));

  const svg = (name, attributes = {}, ...children) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const html = (name, properties = {}, ...children) => {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
  };

  const once = (make) => {
    const made = new Map();
    return (key) => {
      if (!made.has(key)) made.set(key, make(key));
      return made.get(key);
    };
  };
  const cellsOf = once((i) => new Uint16Array(bytes(data.cells[i]).buffer));
  const addressOf = once((i) => {
    const jpeg = data.images[i].jpeg;
    if (jpeg === null) return document.querySelector("#hero image").getAttribute("href");
    return addressed(jpeg);
  });
  const addressed = (jpeg) => URL.createObjectURL(new Blob([bytes(jpeg)], { type: "image/jpeg" }));
  // Parts of an image that the run kept sharper than its preview.
  const detailsOf = once((i) => data.images[i].details.map(({ box, jpeg }) => ({ box, href: addressed(jpeg) })));

  // Path data of the cells whose bit is set (all of them when mask is null); neighbours in a row are joined.
  const path = (cells, mask, w, h, join = true) => {
    const parts = [];
    let x1 = -1, y1 = -1, x2 = -1, y2 = -1;
    const flush = () => {
      if (x2 > x1) parts.push(`M${(x1 * w).toFixed(2)} ${(y1 * h).toFixed(2)}H${(x2 * w).toFixed(2)}V${(y2 * h).toFixed(2)}H${(x1 * w).toFixed(2)}Z`);
    };
    for (let i = 0; i < cells.length / 4; i++) {
      if (mask && !((mask[i >> 3] >> (7 - (i & 7))) & 1)) continue;
      const [a, b, c, d] = [0, 1, 2, 3].map((k) => cells[4 * i + k] / 65535);
      if (join && Math.abs(a - x2) < 1e-4 && b === y1 && d === y2) { x2 = c; continue; }
      flush();
      [x1, y1, x2, y2] = [a, b, c, d];
    }
    flush();
    return parts.join("");
  };

  // The part of the picture shown: everything, or the regions with their surroundings, as sightline.geometry has them.
  const viewBox = (regions, w, h, zoom) => {
    if (!zoom || regions.length === 0) return [0, 0, w, h];
    const left = Math.min(...regions.map((r) => r[0])) * w, right = Math.max(...regions.map((r) => r[2])) * w;
    const top = Math.min(...regions.map((r) => r[1])) * h, bottom = Math.max(...regions.map((r) => r[3])) * h;
    let width = Math.max((right - left) * 1.8, (bottom - top) * 6, w / 5);
    width = Math.min(width, w);
    const height = Math.min(Math.max(width / 3, (bottom - top) * 1.6), h);
    const x = Math.min(Math.max(0, (left + right - width) / 2), w - width);
    const y = Math.min(Math.max(0, (top + bottom - height) / 2), h - height);
    return [x, y, width, height];
  };

  let serial = 0;
  const picture = (entry, panel, zoom) => {
    const { w, h, veil } = data.images[panel.image];
    const cells = cellsOf(panel.cells);
    const id = `mask-${serial++}`;
    const grey = (d) => `rgb(${d * 100}%,${d * 100}%,${d * 100}%)`;
    const mask = svg("mask", { id, maskUnits: "userSpaceOnUse", x: 0, y: 0, width: w, height: h },
      svg("rect", { width: w, height: h, fill: grey(panel.no_cells ? 0 : 0.88) }),
      svg("path", { d: path(cells, null, w, h), fill: grey(0.72) }));
    if (panel.lineage) mask.append(svg("path", { d: path(cells, bytes(panel.lineage), w, h), fill: grey(0.38) }));
    mask.append(svg("path", { d: path(cells, bytes(panel.kept), w, h), fill: "#000" }));
    const view = viewBox(panel.swapped_box ? [...entry.regions, panel.swapped_box] : entry.regions, w, h, zoom);
    const sharp = detailsOf(panel.image).map(({ box: [x1, y1, x2, y2], href }) => svg("image",
      { href, x: x1 * w, y: y1 * h, width: (x2 - x1) * w, height: (y2 - y1) * h, preserveAspectRatio: "none" }));
    const node = svg("svg", { viewBox: view.map((v) => v.toFixed(2)).join(" "), class: "picture", role: "img",
      "aria-label": `${data.arms[panel.arm].label}: ${entry.accepted ? `answers “${panel.predicted}”, ` : ""}${panel.no_cells ? "" : `${panel.evidence_kept} of ${panel.evidence_cells} evidence cells kept, `}${panel.keep === null ? "an unknown share" : `${Math.round(100 * panel.keep)} percent`} of all ${panel.no_cells ? "tokens" : "cells"}` },
      mask,
      svg("image", { href: addressOf(panel.image), width: w, height: h, preserveAspectRatio: "none" }), ...sharp,
      svg("rect", { width: w, height: h, fill: veil, mask: `url(#${id})` }),
      svg("path", { d: path(cells, bytes(panel.kept), w, h, false), fill: "none", stroke: "#fff", "stroke-opacity": 0.4, "stroke-width": 0.6, "vector-effect": "non-scaling-stroke" }));
    const gap = 0.012 * view[2];  // the frame stands around the evidence and covers no letter
    const side = 0.045 * view[2];
    const outline = ([x1, y1, x2, y2], [letter, colour], dashes = "none", away = gap) => {
      const box = { x: x1 * w - away, y: y1 * h - away, width: (x2 - x1) * w + 2 * away, height: (y2 - y1) * h + 2 * away, fill: "none", "vector-effect": "non-scaling-stroke" };
      node.append(svg("rect", { ...box, stroke: "#000", "stroke-width": 4, "stroke-opacity": away ? 1 : 0.4 }), svg("rect", { ...box, stroke: colour, "stroke-width": 2, "stroke-dasharray": dashes }));
      if (!letter) return;
      const above = y1 * h - gap - side;
      const [left, top] = [box.x, above > view[1] ? above : y2 * h + gap];
      node.append(svg("rect", { x: left, y: top, width: side, height: side, fill: colour, stroke: "#000", "vector-effect": "non-scaling-stroke" }),
        svg("text", { x: left + side / 2, y: top + 0.78 * side, "text-anchor": "middle", "font-size": 0.85 * side, "font-weight": 700, "font-family": "sans-serif", fill: "#000" }, letter));
    };
    // Of a page that was written down the texts that are missing, else the evidence and where a wrong answer stands.
    if (panel.lost) for (const box of panel.lost) outline(box, data.lost, "5 3", 0);
    else entry.regions.forEach((box, i) => outline(box, data.marks[entry.marks[i]]));
    if (panel.swapped_box) outline(panel.swapped_box, data.swapped, "5 3");
    return node;
  };

  const MOST_SIGNS = 160, MOST_REGIONS = 4;  // of a whole page that was written down the beginning is enough
  const quoted = (answer) => (answer === "" ? "nothing" : `“${answer.length > MOST_SIGNS ? `${answer.slice(0, MOST_SIGNS).trimEnd()} …` : answer}”`);
  // An answer in words: what was said, what the reference said, and which cells of which region are left.
  const worded = (entry, panel) => {
    const line = html("p", { className: "facts" });
    line.append(html("span", { className: panel.correct ? "right" : "wrong" }, `${quoted(panel.predicted)}, ${panel.correct ? "right" : "wrong"}`),
      ` · score ${fixed(panel.score, 2)} · loss ${fixed(panel.loss, 2)}`, html("br"));
    if (panel.reference_predicted !== null && !(data.reference === "Full" && data.arms[panel.arm].full)) {
      line.append(`${data.reference}: ${quoted(panel.reference_predicted)}, score ${fixed(panel.reference_score, 2)}`, html("br"));
    }
    if (panel.ecr === null) line.append(panel.no_cells ? "no cells to trace" : "no region to trace");
    else {
      line.append(`coverage ${fixed(panel.ecr, 2)}`);
      if (panel.lineage) line.append(`, anchors ${fixed(panel.anchor_ecr, 2)}`);
      const cells = panel.by_region.map(([kept, all], i) => `${data.marks[entry.marks[i]][0] || "region"} ${kept}/${all}`);
      if (cells.length <= MOST_REGIONS) line.append(` · cells left ${cells.join(", ")}`);
    }
    line.append(html("br"));
    const tag = (words) => line.append(html("span", { className: "tag" }, words));
    if (panel.unsupported) tag("right without evidence");
    else if (panel.low) tag("low coverage");
    if (panel.confident) tag("confident and wrong");
    if (panel.swapped_box) tag("swapped");
    if (panel.lost) tag(`${panel.lost.length} of ${panel.texts} texts not found`);
    if (panel.flip) tag(`other than ${data.reference}'s`);
    return line;
  };

  const verdict = (entry, panel) => {
    if (entry.accepted) return worded(entry, panel);
    const line = html("p", { className: "facts" });
    line.append(
      html("span", { className: panel.correct ? "right" : "wrong" }, `${panel.predicted}, ${panel.correct ? "right" : "wrong"}`),
      panel.margin === null ? "" : ` · margin ${signed(panel.margin)}${panel.threshold ? ` at t = ${signed(panel.threshold)}` : ""}`);
    if (panel.reference_margin !== null && !(data.reference === "Full" && data.arms[panel.arm].full)) {
      line.append(` (${data.reference} ${signed(panel.reference_margin)})`);
    };
    line.append(html("br"));
    if (panel.ecr === null) line.append(panel.no_cells ? "no cells to trace" : "no region to trace");
    else {
      line.append(`coverage ${fixed(panel.ecr)}`);
      if (panel.lineage) line.append(`, anchors ${fixed(panel.anchor_ecr)}`);
      line.append(panel.evidence_cells === 0 ? " · evidence outside every cell"
        : ` · ${panel.evidence_kept} of ${panel.evidence_cells} evidence cells`);
    }
    line.append(html("br"));
    const tag = (words) => line.append(html("span", { className: "tag" }, words));
    if (panel.unsupported) tag("unsupported");
    else if (panel.low) tag("low coverage");
    if (panel.flip) tag(`flips vs ${data.reference}`);
    return line;
  };

  // ---- gallery ------------------------------------------------------------------------------------------------
  const state = { filter: "all", arm: "", order: "chosen", change: null, evidence: null };
  const armSelect = byId("gallery-arm");
  data.arms.forEach((arm, i) => armSelect.append(html("option", { value: String(i) }, arm.label)));

  const { changes: changeWords, evidence: evidenceWords } = data.words;
  const passes = {
    all: () => true, unsupported: (p) => p.unsupported, flip: (p) => p.flip, low: (p) => p.low, wrong: (p) => !p.correct,
    confident: (p) => p.confident === true, swapped: (p) => Boolean(p.swapped_box),
  };
  const orders = {
    chosen: () => 0,
    ecr: (p) => (p.ecr === null ? 2 : p.ecr),
    margin: (p) => -Math.abs(p.margin - p.threshold),
    loss: (p) => (p.loss === undefined || p.loss === null ? Infinity : p.loss),
    fall: (p) => (p.reference_score === undefined || p.reference_score === null ? 2 : p.score - p.reference_score),
    change: (p) => (p.reference_margin === null ? 0 : -Math.abs(p.margin - p.reference_margin)),
  };
  // The panel a card shows: the chosen arm's, or the one the case was picked for if it passes, else the first that does.
  const panelFor = (entry) => {
    const able = entry.panels.filter((p) => (state.arm === "" || p.arm === Number(state.arm)) && passes[state.filter](p)
      && (!state.change || p.change === state.change) && (!state.evidence || p.evidence === state.evidence));
    return able.find((p) => p.arm === entry.featured) || able[0];
  };

  const acceptedWords = (entry, most) => {
    const named = entry.accepted.slice(0, most).map(quoted).join(", ");
    const more = entry.accepted.length - most;
    return `Accepted: ${named}${more > 0 ? ` and ${more} more` : ""}`;
  };

  let shown = [];
  const render = () => {
    shown = data.cases.map((entry) => ({ entry, panel: panelFor(entry) })).filter((item) => item.panel);
    const rank = orders[state.order];
    shown.sort((a, b) => rank(a.panel) - rank(b.panel));
    const asked = [state.change && changeWords[state.change], state.evidence && evidenceWords[state.evidence]].filter(Boolean);
    const limited = asked.length ? ` Answer ${asked.join(", ")}; “all cases” shows the others.` : "";
    byId("gallery-found").textContent = shown.length === 0
      ? "No case matches; choose another filter or arm."
      : `${shown.length} of ${data.cases.length} cases.${limited} Open one to see every arm on the same image; arrow keys step through.`;
    byId("gallery").replaceChildren(...shown.map(({ entry, panel }, at) => {
      const card = html("button", { type: "button", className: "card" },
        picture(entry, panel, false),
        html("span", { className: "quoted" }, `${entry.accepted ? entry.question : `“${entry.target}”`} — ${data.arms[panel.arm].label}`),
        ...(entry.accepted ? [html("span", { className: "accepted" }, acceptedWords(entry, 3))] : []),
        verdict(entry, panel));
      card.addEventListener("click", () => open(at));
      return html("li", {}, card);
    }));
  };
  const buttons = [...document.querySelectorAll("#gallery-tools [data-filter]")];
  for (const button of buttons) {
    button.hidden = button.dataset.filter === "swapped" && !data.cases.some(({ panels }) => panels.some(passes.swapped));
  }
  const press = (name) => {
    state.filter = name;
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.filter === name));
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      [state.change, state.evidence] = [null, null];
      press(button.dataset.filter);
      render();
    });
  }
  armSelect.addEventListener("change", () => { state.arm = armSelect.value; render(); });
  byId("gallery-order").addEventListener("change", (event) => { state.order = event.target.value; render(); });

  // Counts in tables that stand for cases: those among the pictures are shown, a count without any is no link.
  for (const link of document.querySelectorAll("a[data-cases]")) {
    const wanted = new URLSearchParams(link.dataset.cases);
    const arm = data.arms.findIndex(({ label }) => label === wanted.get("arm"));
    const fits = (p) => p.arm === arm && (!wanted.get("filter") || passes[wanted.get("filter")](p))
      && (!wanted.get("change") || p.change === wanted.get("change")) && (!wanted.get("evidence") || p.evidence === wanted.get("evidence"));
    const held = data.cases.filter((entry) => entry.panels.some(fits)).length;
    if (held === 0) { link.replaceWith(link.textContent); continue; }
    link.title = `${held} of them among the pictures`;
    link.addEventListener("click", () => {
      [state.arm, state.change, state.evidence] = [String(arm), wanted.get("change"), wanted.get("evidence")];
      armSelect.value = state.arm;
      press(wanted.get("filter") || "all");
      render();
    });
  }

  // ---- one case, every arm ------------------------------------------------------------------------------------
  const dialog = byId("case");
  const roleKey = (entry) => html("span", { className: "key marks" }, ...[...new Set(entry.marks)].map((i) => data.marks[i])
    .filter(([letter]) => letter).map(([letter, colour, words]) => {
      const sign = html("i", { className: "outline letter" }, letter);
      sign.style.borderColor = sign.style.background = colour;
      return html("span", {}, sign, ` ${words}`);
    }));
  let current = 0;
  let zoom = false;
  const draw = () => {
    const { entry } = shown[current];
    byId("case-position").textContent = `Case ${current + 1} of ${shown.length}`;
    byId("case-title").textContent = entry.question;
    byId("case-facts").replaceChildren(...(entry.accepted ? [
      html("b", {}, acceptedWords(entry, 10)), `. ${entry.task ? `Task ${entry.task}. ` : ""}Probe ${entry.probe}.`, roleKey(entry),
    ] : [`Right answer: ${entry.label}. The region reads “${entry.source}”. Probe ${entry.probe}.`]));
    byId("case-panels").replaceChildren(...entry.panels.map((panel) =>
      html("article", { className: "panel" }, html("h4", {}, data.arms[panel.arm].label), picture(entry, panel, zoom), verdict(entry, panel))));
    byId("case-previous").disabled = current === 0;
    byId("case-next").disabled = current === shown.length - 1;
  };
  const open = (at) => { current = at; draw(); if (!dialog.open) dialog.showModal(); };
  const step = (by) => {
    const next = current + by;
    if (next >= 0 && next < shown.length) { current = next; draw(); }
  };
  byId("case-previous").addEventListener("click", () => step(-1));
  byId("case-next").addEventListener("click", () => step(1));
  byId("case-close").addEventListener("click", () => dialog.close());
  byId("case-zoom").addEventListener("click", (event) => {
    zoom = !zoom;
    event.currentTarget.setAttribute("aria-pressed", String(zoom));
    draw();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") step(-1);
    else if (event.key === "ArrowRight") step(1);
  });
  dialog.addEventListener("close", () => {
    const cards = byId("gallery").querySelectorAll(".card");
    if (cards[current]) cards[current].focus();
  });
  render();

  // What breaks first, in the verdict: its picture, which opens the case.
  for (const place of document.querySelectorAll(".shows")) {
    const arm = data.arms.findIndex(({ label }) => label === place.dataset.arm);
    const entry = data.cases.find(({ probe, panels }) => probe === place.dataset.probe && panels.some((p) => p.arm === arm));
    if (!entry) continue;
    const panel = entry.panels.find((p) => p.arm === arm);
    const card = html("button", { type: "button", className: "card" }, picture(entry, panel, false),
      html("span", { className: "quoted" }, entry.accepted ? entry.question : `“${entry.target}”`),
      ...(entry.accepted ? [html("span", { className: "accepted" }, acceptedWords(entry, 3))] : []), verdict(entry, panel));
    card.addEventListener("click", () => {
      [state.arm, state.change, state.evidence] = ["", null, null];
      armSelect.value = "";
      press("all");
      render();
      open(shown.findIndex((item) => item.entry === entry));
    });
    place.append(card);
  }
})();
