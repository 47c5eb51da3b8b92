// One picture in an SVG whose user units are the picture's pixels: zooming is a change of its viewBox.

const NAMESPACE = "http://www.w3.org/2000/svg";
const LEAST = 4; // pixels of a box's side

export function shape(name, attributes = {}, text = "") {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

export class Picture {
  constructor(source, view, label) {
    [this.width, this.height] = view.size;
    this.svg = shape("svg", { role: "group", "aria-label": label, preserveAspectRatio: "xMidYMid meet" });
    this.svg.append(shape("image", { href: source, width: this.width, height: this.height }));
    this.marks = shape("g");
    this.svg.append(this.marks);
    this.regions = view.regions;
    this.whole();
    this.svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 0.8 : 1.25, this.at(event));
    }, { passive: false });
  }

  onbroken(tell) {
    this.svg.querySelector("image").addEventListener("error", tell);
  }

  look(x, y, width, height) {
    this.frame = { x, y, width, height };
    this.svg.setAttribute("viewBox", `${x} ${y} ${width} ${height}`);
    this.onlook?.();
  }

  whole() {
    this.look(0, 0, this.width, this.height);
  }

  // A region with some of its surroundings.
  magnify(region, surroundings = 1.2) {
    const [x1, y1, x2, y2] = this.pixels(region);
    const room = surroundings * Math.max(x2 - x1, (y2 - y1) * 2) + 8;
    this.look(x1 - room / 2, y1 - room / 3, x2 - x1 + room, y2 - y1 + (2 * room) / 3);
  }

  zoom(factor, point) {
    const { x, y, width, height } = this.frame;
    const centre = point ?? [x + width / 2, y + height / 2];
    const kept = clamp(width * factor, 12, this.width * 2) / width;
    this.look(centre[0] - (centre[0] - x) * kept, centre[1] - (centre[1] - y) * kept, width * kept, height * kept);
  }

  pan(dx, dy) {
    const { x, y, width, height } = this.frame;
    this.look(x - dx, y - dy, width, height);
  }

  // Where the pointer is, in pixels of the picture.
  at(event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
    return [point.x, point.y];
  }

  pixels([x1, y1, x2, y2]) {
    return [x1 * this.width, y1 * this.height, x2 * this.width, y2 * this.height];
  }

  // Two corners in pixels, in any order -> a region in fractions, inside the picture and never empty.
  region(ax, ay, bx, by) {
    const x1 = clamp(Math.min(ax, bx), 0, this.width - LEAST);
    const y1 = clamp(Math.min(ay, by), 0, this.height - LEAST);
    const x2 = clamp(Math.max(ax, bx), x1 + LEAST, this.width);
    const y2 = clamp(Math.max(ay, by), y1 + LEAST, this.height);
    return [x1 / this.width, y1 / this.height, x2 / this.width, y2 / this.height];
  }

  rectangle(region, attributes) {
    const [x, y, right, lower] = this.pixels(region);
    return shape("rect", { x, y, width: right - x, height: lower - y, ...attributes });
  }

  outline(shown) {
    this.marks.replaceChildren(...(shown ? this.regions.map((region) => this.rectangle(region, { class: "outline" })) : []));
  }

  // Dragging moves the picture; for pages on which nothing is drawn.
  draggable() {
    this.svg.classList.add("panned");
    this.svg.addEventListener("pointerdown", (event) => this.follow(event, (dx, dy) => this.pan(dx, dy)));
  }

  // Calls `moved` with steps in pixels until the pointer is let go.
  follow(event, moved, ended = () => {}) {
    event.preventDefault();
    this.svg.setPointerCapture(event.pointerId);
    let before = [event.clientX, event.clientY];
    const move = (next) => {
      const scale = this.svg.getScreenCTM().a;
      moved((next.clientX - before[0]) / scale, (next.clientY - before[1]) / scale, next);
      before = [next.clientX, next.clientY];
    };
    const end = (last) => {
      this.svg.removeEventListener("pointermove", move);
      this.svg.removeEventListener("pointerup", end);
      this.svg.removeEventListener("pointercancel", end);
      ended(last);
    };
    this.svg.addEventListener("pointermove", move);
    this.svg.addEventListener("pointerup", end);
    this.svg.addEventListener("pointercancel", end);
  }
}
