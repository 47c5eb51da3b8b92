// One picture: the image, what an arm kept of it, and the boxes, drawn for the zoom of the moment.

const SHADES = { beyond: 0.88, dropped: 0.72, merged: 0.38 }; // of the veil, which is pale over a dark image
const SELECTOR = "#3b9ede";
const REPLAYED = "#12b886";
const ELSEWHERE = "#ff4d6d";

export class Picture {
  // `image` has width, height and cells; `kept` and `lineage` are a byte per cell, lineage null where nothing merged.
  constructor(canvas, zoom) {
    this.canvas = canvas;
    this.zoom = zoom;
    this.bitmap = null;
    this.details = [];
    this.veil = "#000000";
    this.state = { cells: new Float32Array(), kept: null, lineage: null, replay: null };
    this.shown = { mask: true, regions: true, boxes: false };
    this.regions = [];
    this.boxes = [];
    this.swapped = null;
    this.lost = null;
    this.marked = -1;
  }

  draw() {
    const { canvas, zoom } = this;
    const sharp = globalThis.devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * sharp);
    const height = Math.round(canvas.clientHeight * sharp);
    if (!width || !height) return;
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    canvas.classList.toggle("zoomed", zoom.scale > 1);
    const paint = canvas.getContext("2d");
    const left = (x) => (x - zoom.x) * zoom.scale * width + width / 2;
    const top = (y) => (y - zoom.y) * zoom.scale * height + height / 2;
    const place = ([x1, y1, x2, y2]) => [left(x1), top(y1), left(x2) - left(x1), top(y2) - top(y1)];
    paint.clearRect(0, 0, width, height);
    if (this.bitmap) {
      paint.imageSmoothingEnabled = zoom.scale * width < 6 * this.bitmap.naturalWidth;
      paint.drawImage(this.bitmap, ...place([0, 0, 1, 1]));
    }
    for (const { box, bitmap } of this.details) paint.drawImage(bitmap, ...place(box));
    if (this.shown.mask && this.state.kept) this.shade(paint, width, height, left, top);
    const line = Math.max(1.5, 2 * sharp);
    if (this.shown.boxes) for (const box of this.boxes) outline(paint, place(box), SELECTOR, line, [6 * sharp, 4 * sharp]);
    if (this.shown.regions) {
      // Of a page that was written down every text is evidence: only those that are missing are news.
      for (const { box, colour, letter } of this.lost ? [] : this.regions) {
        const spot = place(box);
        outline(paint, spot, colour, line);
        if (letter) tagged(paint, spot, letter, colour, 13 * sharp);
      }
    }
    if (this.shown.regions) {
      for (const box of this.lost ?? []) outline(paint, place(box), ELSEWHERE, line, [4 * sharp, 3 * sharp]);
      if (this.swapped) {
        const spot = place(this.swapped.box);
        outline(paint, spot, ELSEWHERE, line, [6 * sharp, 4 * sharp]);
        worded(paint, spot, `answered from here: ${this.swapped.text}`, ELSEWHERE, 12 * sharp, width, line);
      }
    }
    if (this.marked >= 0) {
      const { cells } = this.state;
      outline(paint, place(cells.subarray(4 * this.marked, 4 * this.marked + 4)), "#fff", line);
    }
  }

  // Kept over merged over dropped over unseen: where tiles and a thumbnail show a spot twice, the best counts.
  shade(paint, width, height, left, top) {
    const { cells, kept, lineage, replay } = this.state;
    if (!cells.length) return;  // of a model without cells nothing is known to be unseen
    const layer = (this.layer ??= document.createElement("canvas"));
    Object.assign(layer, { width, height });
    const shade = layer.getContext("2d");
    shade.fillStyle = this.veil;
    shade.globalAlpha = SHADES.beyond;
    shade.fillRect(0, 0, width, height);
    const now = replay ?? kept;
    const each = (wanted, strength) => {
      shade.globalAlpha = strength;
      for (let i = 0; i < now.length; i += 1) {
        const state = now[i] ? 2 : !replay && lineage?.[i] ? 1 : 0;
        if (state !== wanted) continue;
        const x1 = Math.round(left(cells[4 * i])), y1 = Math.round(top(cells[4 * i + 1]));
        const x2 = Math.round(left(cells[4 * i + 2])), y2 = Math.round(top(cells[4 * i + 3]));
        if (x2 < 0 || y2 < 0 || x1 > width || y1 > height) continue;
        shade.clearRect(x1, y1, x2 - x1, y2 - y1);
        if (strength) shade.fillRect(x1, y1, x2 - x1, y2 - y1);
      }
    };
    each(0, SHADES.dropped);
    each(1, SHADES.merged);
    each(2, 0);
    paint.drawImage(layer, 0, 0);
    if (!replay) return;
    paint.strokeStyle = REPLAYED;
    paint.lineWidth = 1.5;
    for (let i = 0; i < replay.length; i += 1) {
      if (replay[i] === kept[i]) continue;
      const x = left(cells[4 * i]), y = top(cells[4 * i + 1]);
      paint.strokeRect(x + 1, y + 1, left(cells[4 * i + 2]) - x - 2, top(cells[4 * i + 3]) - y - 2);
    }
  }

  // The image's point under an event, in fractions of it.
  at(event) {
    const { left, top, width, height } = this.canvas.getBoundingClientRect();
    return [
      ((event.clientX - left) / width - 0.5) / this.zoom.scale + this.zoom.x,
      ((event.clientY - top) / height - 0.5) / this.zoom.scale + this.zoom.y,
    ];
  }

  // The token whose cell, the smallest of those that hold the point, it is; -1 beyond all of them.
  tokenAt(x, y) {
    const { cells } = this.state;
    let found = -1, smallest = Infinity;
    for (let i = 0; 4 * i < cells.length; i += 1) {
      const [x1, y1, x2, y2] = cells.subarray(4 * i, 4 * i + 4);
      const area = (x2 - x1) * (y2 - y1);
      if (x >= x1 && x < x2 && y >= y1 && y < y2 && area < smallest) [found, smallest] = [i, area];
    }
    return found;
  }
}

// Around the box, not on it: what stands inside is often as small as the line is wide.
function outline(paint, [left, top, across, down], colour, line, dash = []) {
  const [x, y, width, height] = [left - line, top - line, across + 2 * line, down + 2 * line];
  paint.setLineDash(dash);
  paint.strokeStyle = "rgb(0 0 0 / .55)";
  paint.lineWidth = line + 2;
  paint.strokeRect(x, y, width, height);
  paint.strokeStyle = colour;
  paint.lineWidth = line;
  paint.strokeRect(x, y, width, height);
  paint.setLineDash([]);
}

function tagged(paint, [x, y], letter, colour, size) {
  paint.font = `700 ${size}px sans-serif`;
  paint.fillStyle = colour;
  paint.fillRect(x, y - size * 1.25, size * 1.15, size * 1.25);
  paint.fillStyle = "#000";
  paint.fillText(letter, x + size * 0.2, y - size * 0.25);
}

// Words below a box, or above it where there is no room, and never beyond the picture's edge.
function worded(paint, [x, y, , down], words, colour, size, width, line) {
  paint.font = `600 ${size}px sans-serif`;
  const across = Math.min(width, paint.measureText(words).width + size * 0.8);
  const left = Math.max(0, Math.min(x - line, width - across));
  const top = y + down + 2 * line + size * 1.5 > paint.canvas.height ? y - 2 * line - size * 1.5 : y + down + 2 * line;
  paint.fillStyle = colour;
  paint.fillRect(left, top, across, size * 1.5);
  paint.fillStyle = "#000";
  paint.fillText(words, left + size * 0.4, top + size * 1.1, across - size * 0.8);
}
