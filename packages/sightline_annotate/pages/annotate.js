// One person's work on one campaign: shows an item, saves every change, confirms, goes on.

import { Boxes } from "/annotate/boxes.js";
import { Form } from "/annotate/form.js";
import { Picture } from "/annotate/picture.js";
import { Saver, get, post } from "/annotate/server.js";

const place = (name) => document.getElementById(name);
const message = (words, failed = false) => {
  place("message").textContent = words;
  place("message").classList.toggle("failed", failed);
};
const PAUSE = 350; // milliseconds after the last letter of a text before it is saved

const campaign = await get("/campaign");
let item, saver, fields, boxes, pictures, confirmed, waiting, outlined, magnified, busy;

document.title = `${campaign.title} – Sightline annotate`;
place("title").textContent = campaign.title;
place("facts").textContent = `${campaign.who}, ${campaign.pass === "adjudication" ? campaign.pass : `${campaign.pass} pass`}`;
const form = new Form(campaign, { fields: place("fields"), remarks: place("remarks") }, changed);

function changed(typing = false) {
  if (busy) return; // on the way to another item: this one is settled
  clearTimeout(waiting);
  setConfirmed(false);
  waiting = setTimeout(flush, PAUSE);
  if (!typing) flush(); // every decision is an entry of its own, so that undo takes back one
}

function flush() {
  clearTimeout(waiting);
  if (waiting === undefined) return Promise.resolve();
  waiting = undefined;
  return saver.save(fields, false).catch(failed);
}

function setConfirmed(now) {
  confirmed = now;
  place("confirm").classList.toggle("given", now);
  place("confirm").firstChild.textContent = now ? "Confirmed; go on " : "Confirm and go on ";
}

// Nothing was saved. Where another window was quicker, its state is shown; where another person was, what is open.
async function failed(error) {
  if (error.status === 409) await show(item.number).catch(goOn);
  if (error.field) form.look(error.field);
  message(error.message, true);
}

function heard(what, said) {
  if (what === "saving") return;
  const at = new Date(said.entry.at).toLocaleTimeString();
  message(said.entry.confirmed ? `confirmed and saved ${at}` : `draft saved ${at}`);
  count(said.progress);
}

function count({ done, all }) {
  place("progress").max = Math.max(all, 1);
  place("progress").value = done;
  place("count").textContent = `${done} of ${all} done`;
}

async function show(number) {
  item = await get(`/item/${number}`);
  fields = item.entry?.fields ?? beginning();
  saver = new Saver(number, item.entry, heard);
  waiting = undefined;
  place("work").hidden = false;
  place("done").hidden = true;
  place("question").textContent = item.question;
  place("before").disabled = item.before === null;
  place("after").disabled = item.after === null;
  showWords();
  showPictures();
  form.show(fields, item.disagreement);
  setConfirmed(Boolean(item.entry?.confirmed));
  count(item.progress);
  message(`item ${item.place} of ${item.progress.all}` + (item.entry && !confirmed && item.entry.fields ? ", your draft" : ""));
  history.replaceState(null, "", `#${number}`);
}

// What two people agreed on stands; the third person answers the rest.
function beginning() {
  const empty = campaign.roles ? { boxes: [] } : {};
  if (!item.disagreement) return empty;
  const { readings, differing } = item.disagreement;
  const agreed = campaign.fields.filter(({ name }) => !differing.includes(name)).map(({ name }) => [name, readings[0][name]]);
  return { ...empty, ...Object.fromEntries(agreed) };
}

function showWords() {
  const rows = [];
  const row = (title, text, other) => {
    const line = document.createElement("span");
    line.className = "row";
    const name = document.createElement("span");
    name.textContent = title;
    const value = document.createElement("b");
    const [before, differs, after] = apart(text, other ?? text);
    const mark = document.createElement("mark");
    mark.textContent = differs;
    value.append(before, ...(differs ? [mark] : []), after);
    line.append(name, value);
    rows.push(line);
  };
  if (item.source_text && !item.target_text) row("read as", item.source_text);
  else if (item.source_text) {
    const fixed = campaign.kind === "text-replacement";
    row(fixed ? "old word" : "the word", item.source_text, item.target_text);
    row(fixed ? "new word" : "asked word", item.target_text, item.source_text);
  }
  item.answers.forEach((answer, index) => row(index ? "or" : "answer", answer));
  place("words").replaceChildren(...rows);
}

// A word as what it begins with like another, what differs, and what it ends with like the other.
function apart(text, other) {
  let start = 0;
  while (start < text.length && text[start] === other[start]) start += 1;
  let end = 0;
  const most = Math.min(text.length, other.length) - start;
  while (end < most && text.at(-1 - end) === other.at(-1 - end)) end += 1;
  return [text.slice(0, start), text.slice(start, text.length - end), text.slice(text.length - end)];
}

function showPictures() {
  outlined = true;
  magnified = item.views.length > 1;
  const holder = place("pictures");
  pictures = item.views.map((view, index) => new Picture(`/picture/${item.number}/${index}`, view, view.caption));
  pictures.forEach((picture) => picture.onbroken(() => message("A picture cannot be shown: it is gone, or was changed after the campaign was made.", true)));
  const figures = pictures.map((picture, index) => figure(picture, item.views[index].caption));
  boxes = undefined;
  if (campaign.roles) drawn();
  else pictures.forEach((picture) => picture.draggable());
  const single = pictures.length === 1 && item.views[0].regions.length;
  if (single) {
    const inset = new Picture(`/picture/${item.number}/0`, item.views[0], "The word, magnified");
    inset.magnify(inset.regions[0], 0.3);
    inset.draggable();
    pictures.push(inset);
    figures.push(figure(inset, "The word, magnified"));
  }
  holder.className = `pictures${single ? " two-rows" : ""}${item.views.length > 1 ? " four" : ""}`;
  holder.replaceChildren(...figures);
  look();
  boxes?.draw();
}

function figure(picture, words) {
  const element = document.createElement("figure");
  const caption = document.createElement("figcaption");
  caption.textContent = words;
  element.append(caption, picture.svg);
  return element;
}

function drawn() {
  place("drawing").hidden = false;
  boxes = new Boxes(pictures[0], place("boxes"), campaign.roles, fields.boxes, (typing) => {
    showRoles();
    changed(typing);
  });
  if (item.disagreement) {
    boxes.readings = item.disagreement.readings.map((reading) => reading.boxes);
    offerReadings();
  }
  const choose = boxes.choose.bind(boxes);
  boxes.choose = (index) => {
    choose(index);
    showRoles();
  };
  showRoles();
}

function offerReadings() {
  place("readings").replaceChildren(...item.disagreement.readings.map((reading, side) => {
    const button = document.createElement("button");
    const key = document.createElement("kbd");
    key.textContent = side ? "G" : "F";
    Object.assign(button, { type: "button", className: "do" });
    button.append(`Take ${side ? "the other" : "one"} person’s boxes `, key);
    button.addEventListener("click", () => take(side));
    return button;
  }));
}

function take(side) {
  if (!item.disagreement || !boxes) return;
  boxes.boxes.splice(0, boxes.boxes.length, ...structuredClone(item.disagreement.readings[side].boxes));
  boxes.choose(null);
  changed();
}

function showRoles() {
  place("roles").replaceChildren(...Object.entries(campaign.roles).map(([role, { letter, colour, words }]) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "do", title: words });
    button.setAttribute("aria-pressed", boxes.role === role);
    const badge = document.createElement("i");
    badge.textContent = letter;
    badge.style.background = colour;
    button.append(badge, role.replaceAll("_", " "));
    button.addEventListener("click", () => setRole(role));
    return button;
  }));
}

function setRole(role) {
  boxes.setRole(role);
  showRoles();
}

function look() {
  pictures.forEach((picture, index) => {
    if (!boxes) picture.outline(outlined);
    if (index >= item.views.length) return;
    if (magnified && picture.regions.length) picture.magnify(picture.regions[0]);
    else picture.whole();
  });
}

async function confirm() {
  await flush();
  if (campaign.roles && !fields.status && fields.boxes.length) fields.status = "annotated";
  clearTimeout(waiting);
  waiting = undefined;
  try {
    if (!confirmed) await saver.save(fields, true);
  } catch (error) {
    return failed(error);
  }
  setConfirmed(true);
  await goOn();
}

async function goOn() {
  const { number } = await get("/next");
  if (number === null) finished();
  else await show(number);
}

async function finished() {
  place("work").hidden = true;
  place("done").hidden = false;
  const { progress } = await get("/campaign");
  count(progress);
  place("done-words").textContent = `All ${progress.all} of your items are confirmed and saved. You can close this page, or look through your answers and change them.`;
}

async function undo() {
  await flush();
  await saver?.settled();
  const { number } = await post("/undo");
  if (number === null) return message("nothing to undo");
  await show(number);
  message("undone and saved");
}

async function step(to) {
  if (to === null || to === undefined) return;
  await flush();
  await saver.settled();
  await show(to);
}

// One thing at a time.
async function again(act) {
  if (busy) return;
  busy = true;
  try {
    await act();
  } catch (error) {
    message(error.message, true);
  } finally {
    busy = false;
  }
}

const KEYS = [
  ["1 2 3 …", "the first, second, third answer to the marked question"],
  ...(campaign.roles
    ? [
        ["drag", "draw a box; drag a box to move it, its corner to size it"],
        [Object.values(campaign.roles).map(({ letter }) => letter).join(" "), "role of the chosen box, or of the next"],
        ["D", "a box in the middle, without a pointer"],
        ["arrows", "move the chosen box; with Shift, size it"],
        ["Tab", "the next box, while no text is being typed"],
        ["T", "type what is written in the box"],
        ["Delete", "remove the box"],
        ["Shift + drag", "move the picture"],
      ]
    : [
        ["Y N", "yes, no"],
        ["↑ ↓", "the question above, below"],
        ["drag", "move the picture"],
      ]),
  ["Enter", "confirm and go on to what is open"],
  ["U, Ctrl Z", "undo your last change, also after confirming"],
  ["J K", "next and previous item"],
  ["+ − 0", "closer, further away, the whole picture; the wheel does so too"],
  ["Z", "magnify the place, and back"],
  ["B", "hide and show the outline"],
  ...(campaign.pass === "adjudication" && campaign.roles ? [["F G", "take one person’s boxes, or the other’s"]] : []),
  ["Esc", "leave a text field"],
];
place("help-about").textContent = campaign.about;
place("help-list").replaceChildren(...KEYS.flatMap(([keys, says]) => {
  const [name, about] = [document.createElement("dt"), document.createElement("dd")];
  const shown = document.createElement("kbd");
  shown.textContent = keys;
  name.append(shown);
  about.textContent = says;
  return [name, about];
}));

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function pressed(event) {
  if (place("help").open || place("work").hidden) return;
  if (busy) return event.preventDefault(); // nobody has seen yet what the key would be about
  const typing = event.target.matches?.("input:not([type=radio]), textarea");
  if (event.key === "Escape" && typing) return event.target.blur();
  if (event.key === "Enter" && !event.target.matches?.("button")) {
    event.preventDefault();
    return again(confirm);
  }
  if (typing) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (key === "z" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    return again(undo);
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (act(key, event)) event.preventDefault();
}

function act(key, event) {
  const role = boxes && Object.entries(campaign.roles).find(([, { letter }]) => letter.toLowerCase() === key);
  if (role) return setRole(role[0]), true;
  if (ARROWS[key] && boxes) return boxes.move(...ARROWS[key], event.shiftKey);
  if (key === "ArrowUp" || key === "ArrowDown") return form.go(form.now + ARROWS[key][1]), true;
  if (/^[1-9]$/.test(key)) return form.digit(Number(key)), true;
  if (key === "Tab") {
    if (!boxes || event.target.closest?.(".panel, .bar")) return false;
    return boxes.cycle(event.shiftKey);
  }
  const one = {
    y: () => form.letter("yes"),
    n: () => form.letter("no"),
    u: () => again(undo),
    j: () => again(() => step(item.after)),
    k: () => again(() => step(item.before)),
    z: () => ((magnified = !magnified), look()),
    b: () => ((outlined = !outlined), look()),
    "+": () => pictures[0].zoom(0.8),
    "=": () => pictures[0].zoom(0.8),
    "-": () => pictures[0].zoom(1.25),
    0: () => ((magnified = false), look()),
    "?": () => place("help").showModal(),
    d: () => boxes?.addInTheMiddle(),
    t: () => boxes?.typeText(),
    f: () => take(0),
    g: () => take(1),
    Delete: () => boxes?.remove(),
    Backspace: () => boxes?.remove(),
  }[key];
  if (!one) return false;
  one();
  return true;
}

document.addEventListener("keydown", pressed);
// A button that was clicked gives the keys back: Enter confirms, it does not click again.
document.addEventListener("click", (event) => event.detail && event.target.closest("button")?.blur());
place("form").addEventListener("submit", (event) => {
  event.preventDefault();
  again(confirm);
});
place("undo").addEventListener("click", () => again(undo));
place("before").addEventListener("click", () => again(() => step(item.before)));
place("after").addEventListener("click", () => again(() => step(item.after)));
place("keys").addEventListener("click", () => place("help").showModal());
place("look-back").addEventListener("click", () => again(() => show(campaign.first)));
addEventListener("resize", () => boxes?.draw());

const asked = location.hash.slice(1);
await again(async () => (/^\d+$/.test(asked) ? show(Number(asked)).catch(goOn) : goOn()));
document.body.dataset.ready = "yes";
