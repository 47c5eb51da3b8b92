// One zoom for all pictures of a case: what is looked at in one is looked at in all.

const MOST = 40;

export class Zoom {
  constructor(changed) {
    this.changed = changed;
    this.reset();
  }

  // (x, y) is the image's point in the middle, in fractions of it.
  reset() {
    this.scale = 1;
    this.x = 0.5;
    this.y = 0.5;
  }

  set(scale, x, y) {
    this.scale = Math.min(MOST, Math.max(1, scale));
    const half = 0.5 / this.scale;
    this.x = Math.min(1 - half, Math.max(half, x));
    this.y = Math.min(1 - half, Math.max(half, y));
    this.changed();
  }

  // Nearer by a factor, with the point under the pointer where it is.
  by(factor, x = this.x, y = this.y) {
    const scale = Math.min(MOST, Math.max(1, this.scale * factor));
    const part = this.scale / scale;
    this.set(scale, x + (this.x - x) * part, y + (this.y - y) * part);
  }

  move(dx, dy) {
    this.set(this.scale, this.x + dx / this.scale, this.y + dy / this.scale);
  }

  // So near that a box fills about a third of the picture.
  to(box) {
    const [x1, y1, x2, y2] = box;
    const size = Math.max(x2 - x1, y2 - y1, 0.01);
    this.set(0.3 / size, (x1 + x2) / 2, (y1 + y2) / 2);
  }

  get words() {
    return this.scale === 1 ? "" : [this.scale, this.x, this.y].map((value) => value.toFixed(3)).join(",");
  }

  read(words) {
    const [scale, x, y] = (words ?? "").split(",").map(Number);
    if (Number.isFinite(scale) && Number.isFinite(y) && scale >= 1) this.set(scale, x, y);
    else { this.reset(); this.changed(); }
  }
}

// Wheel, drag, two fingers and keys on a canvas. `at` turns an event into the image's point under it.
export function attachZoom(canvas, zoom, at) {
  const pointers = new Map();
  let apart = 0;
  const distance = () => {
    const [a, b] = [...pointers.values()];
    return Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom.by(Math.exp(-event.deltaY * 0.0016), ...at(event));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, event);
    canvas.setPointerCapture(event.pointerId);
    if (pointers.size === 2) apart = distance();
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    pointers.set(event.pointerId, event);
    const { width, height } = canvas.getBoundingClientRect();
    if (pointers.size === 2) {
      const now = distance();
      if (apart > 0) zoom.by(now / apart);
      apart = now;
    } else if (zoom.scale > 1) {
      zoom.move((before.clientX - event.clientX) / width, (before.clientY - event.clientY) / height);
    }
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, (event) => pointers.delete(event.pointerId));
  }
  canvas.addEventListener("dblclick", (event) => (zoom.scale > 1 ? zoom.set(1, 0.5, 0.5) : zoom.by(4, ...at(event))));
}
