// What tests execute in pages, each under its name; arguments come as for Selenium's execute_script.

//// count shifts
// Adds up in window.shifted how far anything moves by itself.
new PerformanceObserver((list) => {
  window.shifted = (window.shifted ?? 0) + list.getEntries().reduce((sum, entry) => sum + entry.value, 0);
}).observe({ type: 'layout-shift', buffered: true });

//// turn the wheel
// (picture)
const { x, y } = arguments[0].getBoundingClientRect();
const turned = { deltaY: -600, clientX: x + 80, clientY: y + 60, cancelable: true };
arguments[0].dispatchEvent(new WheelEvent('wheel', turned));

//// fetch from another origin
// (address, done)
const [address, done] = arguments;
fetch(address + 'api/runs', { credentials: 'include' }).then((answer) => answer.text())
  .then(done, () => done('blocked'));

//// frame another origin
// (address, done)
const [address, done] = arguments;
const frame = document.createElement('iframe');
frame.onload = () => done(frame.contentDocument === null ? 'blocked' : 'open');
frame.src = address;
document.body.append(frame);

//// replay
// (scores, keep, done) -> which tokens the viewer keeps
const [scores, keep, done] = arguments;
import('/view/replay.js').then(({ replayed }) => done([...replayed(scores, keep, [[15, 20]], false)]));

//// clauses
// (query, column, value, chip, done) -> the query with that choice, and with that button pressed
const [query, column, value, chip, done] = arguments;
import('/view/filters.js').then(({ clausesOf, withChoice, withChip }) => done([
  withChoice(clausesOf(query), column, value),
  withChip(clausesOf(query), chip, { right: 'correct', wrong: 'not correct' }),
]));

//// nameless in the viewer
// -> what is operated and has no name
return [...document.querySelectorAll('button, a, input, select, canvas')]
  .filter((element) => element.checkVisibility())
  .filter((element) => !(element.textContent.trim() || element.getAttribute('aria-label')
    || element.title || element.labels?.length))
  .map((element) => element.outerHTML.slice(0, 120));

//// brightness of places
// (canvas, places as shares of its sides)
const [canvas, cells] = arguments;
const { width, height } = canvas;
const pixels = canvas.getContext('2d').getImageData(0, 0, width, height).data;
return cells.map(([x, y]) => { const at = 4 * (Math.floor(y * height) * width + Math.floor(x * width));
  return pixels[at] + pixels[at + 1] + pixels[at + 2]; });

//// list shifts
// Notes in window.shifted everything that moves by itself.
window.shifted = [];
new PerformanceObserver((list) => window.shifted.push(...list.getEntries().map((each) => each.value)))
  .observe({ type: "layout-shift", buffered: true });

//// contrast
// -> (contrast by WCAG, words) of all that is read
const light = (colour) => {
  const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map((part) => {
    const value = part / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (element) => {
  for (let each = element; each; each = each.parentElement) {
    const colour = getComputedStyle(each).backgroundColor;
    if (!/, 0\)$/.test(colour)) return colour;
  }
  return "rgb(255, 255, 255)";
};
return [...document.querySelectorAll("legend, .answers span, #question, .words b, .facts, .confirm, .message")]
  .filter((element) => element.textContent.trim())
  .map((element) => {
    const [a, b] = [light(getComputedStyle(element).color), light(ground(element))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.id + element.textContent];
  });

//// attack an annotator
// (origin, body, done) -> what became of reading, saving, undoing and a picture
const [origin, body, done] = arguments;
const attempt = (promise) => promise.then((answer) => answer.status ?? "opaque", () => "refused");
const picture = new Promise((loaded, failed) => {
  const image = new Image();
  image.onload = () => loaded({ status: "shown" });
  image.onerror = failed;
  image.src = `${origin}/picture/0/0`;
});
Promise.all([
  attempt(fetch(`${origin}/item/0`, { credentials: "include" })),
  attempt(fetch(`${origin}/save`, { method: "POST", mode: "no-cors", credentials: "include", body })),
  attempt(fetch(`${origin}/undo`, { method: "POST", mode: "no-cors", credentials: "include" })),
  attempt(picture),
]).then(done);

//// size of the picture
// (done)
const done = arguments[0], image = new Image();
image.onload = () => done([image.naturalWidth, image.naturalHeight]);
image.src = document.querySelector('svg image').getAttribute('href');

//// nameless in a report
// -> what a screen reader finds no name for
const name = (n) => (n.getAttribute("aria-label") || n.textContent || n.getAttribute("title") || "").trim();
const bad = [];
for (const n of document.querySelectorAll("button, a, select, svg[role=img]")) {
  const label = n.tagName === "SELECT" ? n.closest("label") : n;
  if (!label || !name(label)) bad.push(n.outerHTML.slice(0, 120));
}
for (const t of document.querySelectorAll("table")) {
  if (!t.caption || !t.caption.textContent.trim()) bad.push("table without caption " + t.id);
  for (const h of t.tHead.rows[0].cells) if (h.scope !== "col") bad.push("header without scope in " + t.id);
}
for (const s of document.querySelectorAll("section")) {
  if (!document.getElementById(s.getAttribute("aria-labelledby"))) bad.push("section without name " + s.id);
}
return bad;

//// bars
// -> (top, left, width) of every piece of a bar
return [...document.querySelectorAll('#realised-cost svg.wide rect')].filter((r) => r.querySelector('title'))
  .map((r) => [+r.getAttribute('y'), +r.getAttribute('x'), +r.getAttribute('width')])
