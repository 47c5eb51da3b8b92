// Menus and buttons that write the query: what they choose stands in the box, and what stands in the box they show.

import { el } from "./dom.js";
import { go, placeNow } from "./place.js";

const WORDS = { arm: "Arm", view: "View", kind: "Kind", outcome: "Outcome", label: "True answer" };

// The parts of a query that are joined by "and" outside quotes and brackets; one with an "or" there is a single part.
export function clausesOf(query) {
  const parts = [""];
  let depth = 0, quote = "", either = false;
  for (let i = 0; i < query.length; i += 1) {
    const sign = query[i];
    const joint = !quote && !depth ? /^\s+(and|or)\s+/i.exec(query.slice(i)) : null;
    if (joint) {
      either ||= joint[1].toLowerCase() === "or";
      parts.push("");
      i += joint[0].length - 1;
      continue;
    }
    if (quote && sign === "\\") {
      parts[parts.length - 1] += sign + (query[i + 1] ?? "");
      i += 1;
      continue;
    }
    if (quote) quote = sign === quote ? "" : quote;
    else if (sign === '"' || sign === "'") quote = sign;
    else if (sign === "(" || sign === "[") depth += 1;
    else if (sign === ")" || sign === "]") depth -= 1;
    parts[parts.length - 1] += sign;
  }
  if (either) return [`(${query.trim()})`];
  return parts.map((part) => part.trim()).filter(Boolean);
}

// What a menu has chosen: the text that its column is compared with.
export function chosenOf(clauses, column) {
  const said = clauses.find((clause) => clause.startsWith(`${column} == "`));
  try {
    return said ? JSON.parse(said.slice(column.length + 4)) : "";
  } catch {
    return "";
  }
}

export function withChoice(clauses, column, value) {
  const others = clauses.filter((clause) => !clause.startsWith(`${column} == "`));
  return (value === "" ? others : [...others, `${column} == ${JSON.stringify(value)}`]).join(" and ");
}

// A button that is pressed is taken back; right and wrong exclude each other.
export function withChip(clauses, query, chips) {
  const own = clausesOf(query);
  if (own.every((clause) => clauses.includes(clause))) return clauses.filter((clause) => !own.includes(clause)).join(" and ");
  const opposite = own.flatMap((clause) => [`not ${clause}`, clause.replace(/^not /, "")]).filter((clause) => !own.includes(clause) && Object.values(chips).includes(clause));
  return [...clauses.filter((clause) => !own.includes(clause) && !opposite.includes(clause)), ...own].join(" and ");
}

export function filters(place, { menus, chips }) {
  const clauses = clausesOf(place.query ?? "");
  const show = (query) => go({ ...placeNow(), query, offset: "" });
  const pressed = (query) => clausesOf(query).every((clause) => clauses.includes(clause));
  return el("div", { class: "line filters" },
    Object.entries(menus).map(([column, values]) => el("label", null, `${WORDS[column]} `,
      el("select", { "data-column": column, onchange: (event) => show(withChoice(clauses, column, event.target.value)) },
        el("option", { value: "" }, "all"), values.map((value) => el("option", { value, selected: chosenOf(clauses, column) === value }, value))))),
    Object.entries(chips).map(([words, query]) => el("button", { class: "do", type: "button", "data-chip": words, title: query, "aria-pressed": String(pressed(query)), onclick: () => show(withChip(clauses, query, chips)) }, words)));
}
