// Numbers and answers as people read them.

export function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  return value.toFixed(digits).replace("-", "−");
}

export function whole(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, " ");
}

export function cell(value, kind) {
  if (value === null || value === undefined) return "–";
  if (value === true) return "yes";
  if (value === false) return "no";
  if (typeof value === "number") return kind === "number" ? number(value) : whole(value);
  return String(value);
}

export function plural(count, word) {
  return `${whole(count)} ${word}${count === 1 ? "" : "s"}`;
}
