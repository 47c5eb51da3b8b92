// Boxes with roles, drawn on a picture by pointer or keyboard. `changed` is called after every finished change.

import { shape } from "/annotate/picture.js";

export class Boxes {
  constructor(picture, list, roles, boxes, changed) {
    Object.assign(this, { picture, list, roles, boxes, changed });
    this.role = Object.keys(roles)[0];
    this.on = null;
    picture.svg.classList.add("drawn");
    picture.svg.addEventListener("pointerdown", (event) => this.begin(event));
    picture.onlook = () => this.draw();
    this.readings = [];
    this.draw();
  }

  choose(index) {
    this.on = index;
    if (index !== null) this.role = this.boxes[index].role;
    this.draw();
  }

  setRole(role) {
    this.role = role;
    if (this.on !== null) {
      this.boxes[this.on].role = role;
      this.changed();
    }
    this.draw();
  }

  add(region) {
    this.boxes.push({ region, role: this.role, text: "" });
    this.on = this.boxes.length - 1;
    this.draw();
    this.changed();
  }

  remove() {
    if (this.on === null) return;
    this.boxes.splice(this.on, 1);
    this.on = this.boxes.length ? Math.min(this.on, this.boxes.length - 1) : null;
    this.draw();
    this.changed();
  }

  // Without a pointer: a box in the middle of what is seen, to be moved and sized with arrows.
  addInTheMiddle() {
    const { x, y, width, height } = this.picture.frame;
    this.add(this.picture.region(x + width * 0.4, y + height * 0.45, x + width * 0.6, y + height * 0.55));
  }

  move(dx, dy, size) {
    if (this.on === null) return false;
    const box = this.boxes[this.on];
    const step = Math.max(1, this.picture.frame.width / 200);
    const [x1, y1, x2, y2] = this.picture.pixels(box.region);
    const [sx, sy] = [dx * step, dy * step];
    if (size) box.region = this.picture.region(x1, y1, Math.max(x1 + 4, x2 + sx), Math.max(y1 + 4, y2 + sy));
    else {
      const mx = Math.min(Math.max(sx, -x1), this.picture.width - x2);
      const my = Math.min(Math.max(sy, -y1), this.picture.height - y2);
      box.region = this.picture.region(x1 + mx, y1 + my, x2 + mx, y2 + my);
    }
    this.draw();
    this.changed();
    return true;
  }

  begin(event) {
    if (event.button !== 0) return;
    if (event.shiftKey) {
      this.picture.follow(event, (dx, dy) => this.picture.pan(dx, dy));
      return;
    }
    const held = event.target.dataset?.box;
    if (event.target.classList.contains("handle")) this.resize(event);
    else if (held !== undefined) this.drag(event, Number(held));
    else this.rubber(event);
  }

  resize(event) {
    const box = this.boxes[this.on];
    const [x1, y1] = this.picture.pixels(box.region);
    this.picture.follow(event, (dx, dy, next) => {
      const [x, y] = this.picture.at(next);
      box.region = this.picture.region(x1, y1, Math.max(x1 + 4, x), Math.max(y1 + 4, y));
      this.draw();
    }, () => this.changed());
  }

  drag(event, index) {
    this.choose(index);
    const box = this.boxes[index];
    let moved = false;
    this.picture.follow(event, (dx, dy) => {
      const [x1, y1, x2, y2] = this.picture.pixels(box.region);
      const mx = Math.min(Math.max(dx, -x1), this.picture.width - x2);
      const my = Math.min(Math.max(dy, -y1), this.picture.height - y2);
      box.region = this.picture.region(x1 + mx, y1 + my, x2 + mx, y2 + my);
      moved = true;
      this.draw();
    }, () => moved && this.changed());
  }

  rubber(event) {
    const [ax, ay] = this.picture.at(event);
    const band = shape("rect", { class: "rubber", x: ax, y: ay, width: 0, height: 0 });
    this.picture.svg.append(band);
    let end = [ax, ay];
    this.picture.follow(event, (dx, dy, next) => {
      end = this.picture.at(next);
      for (const [name, value] of Object.entries({
        x: Math.min(ax, end[0]), y: Math.min(ay, end[1]), width: Math.abs(end[0] - ax), height: Math.abs(end[1] - ay),
      })) band.setAttribute(name, value);
    }, () => {
      band.remove();
      const least = 4 / this.picture.svg.getScreenCTM().a; // a click is no box
      if (Math.abs(end[0] - ax) > least && Math.abs(end[1] - ay) > least) this.add(this.picture.region(ax, ay, ...end));
      else this.choose(null);
    });
  }

  draw() {
    const unit = 1 / (this.picture.svg.getScreenCTM()?.a || 1);
    const marks = this.readings.flatMap((boxes, side) =>
      boxes.map((box) => this.picture.rectangle(box.region, { class: `reading ${side ? "other" : "one"}` })));
    this.boxes.forEach((box, index) => {
      const { letter, colour } = this.roles[box.role];
      const [x, y, right, lower] = this.picture.pixels(box.region);
      const drawn = this.picture.rectangle(box.region, { class: index === this.on ? "box on" : "box", stroke: colour, "data-box": index });
      const label = shape("text", { class: "letter", fill: colour, x: x + 3 * unit, y: y - 4 * unit, "font-size": 13 * unit }, letter);
      label.style.fontSize = `${13 * unit}px`;
      label.style.strokeWidth = `${3 * unit}px`;
      marks.push(drawn, label);
      if (index === this.on) {
        marks.push(shape("rect", { class: "handle", x: right - 4 * unit, y: lower - 4 * unit, width: 8 * unit, height: 8 * unit }));
      }
    });
    this.picture.marks.replaceChildren(...marks);
    this.drawList();
  }

  // The same boxes as a list: what a screen reader reads, and where texts are typed.
  drawList() {
    const typing = this.list.contains(document.activeElement) && document.activeElement.tagName === "INPUT";
    if (typing && this.list.dataset.count === String(this.boxes.length)) return this.markList();
    this.list.dataset.count = String(this.boxes.length);
    const rows = this.boxes.map((box, index) => this.row(box, index));
    if (!rows.length) {
      const empty = document.createElement("li");
      empty.className = "empty";
      empty.textContent = "No box yet. Drag on the picture, or press D.";
      rows.push(empty);
    }
    this.list.replaceChildren(...rows);
    this.markList();
  }

  markList() {
    [...this.list.children].forEach((row, index) => {
      const box = this.boxes[index];
      if (!box) return;
      row.className = index === this.on ? "on" : "";
      const badge = row.querySelector("i");
      const { letter, colour, words } = this.roles[box.role];
      badge.textContent = letter;
      badge.style.background = colour;
      row.querySelector("input").setAttribute("aria-label", `Text in box ${index + 1}, ${words}`);
    });
  }

  row(box, index) {
    const row = document.createElement("li");
    const badge = document.createElement("i");
    const text = document.createElement("input");
    const gone = document.createElement("button");
    Object.assign(text, { value: box.text, placeholder: "what is written there", maxLength: 500 });
    text.addEventListener("focus", () => this.choose(index));
    text.addEventListener("input", () => {
      box.text = text.value;
      this.changed(true);
    });
    Object.assign(gone, { type: "button", className: "do", textContent: "×" });
    gone.setAttribute("aria-label", `Remove box ${index + 1}`);
    gone.addEventListener("click", () => {
      this.on = index;
      this.remove();
    });
    row.append(badge, text, gone);
    return row;
  }

  typeText() {
    if (this.on !== null) this.list.children[this.on].querySelector("input").focus();
  }

  // Tab on the picture: the next box; after the last one none, and false, so that Tab goes on through the page.
  cycle(back) {
    const next = this.on === null ? (back ? this.boxes.length - 1 : 0) : this.on + (back ? -1 : 1);
    const found = next >= 0 && next < this.boxes.length;
    this.choose(found ? next : null);
    return found;
  }
}
