// Right answers against surviving evidence: the report's frontier, every point a link to the rows behind it.

import { svg } from "./dom.js";
import { number } from "./formats.js";
import { addressOf } from "./place.js";

const MOST_NAMED = 16;
const SHAPES = {
  diamond: "M0-8L8 0L0 8L-8 0Z",
  circle: "M6 0A6 6 0 1 1-6 0A6 6 0 1 1 6 0Z",
  square: "M-5.5-5.5H5.5V5.5H-5.5Z",
  triangle: "M0-7.5L7 5H-7Z",
};

// Where a name may stand: beside its point, above, below, and farther off at the end of a line.
const SPOTS = [[10, 4, "start"], [-10, 4, "end"], [0, -12, "middle"], [0, 20, "middle"],
  ...[26, 44, 62, 84, 110].flatMap((far) => [[far, -far / 2, "start"], [far, far / 2 + 8, "start"], [-far, -far / 2, "end"], [-far, far / 2 + 8, "end"], [0, -far, "middle"], [0, far + 8, "middle"]])];

function shapeOf(point) {
  if (point.full) return "diamond";
  if (/oracle/i.test(point.panel)) return "triangle";
  return /detector/i.test(point.panel) ? "square" : "circle";
}

function scaleOf(values, start, end) {
  const low = Math.min(...values), high = Math.max(...values);
  const room = Math.max(0.03, 0.08 * (high - low));
  const [from, to] = [Math.max(0, low - room), Math.min(1, high + room)];
  const place = (value) => start + ((value - from) / (to - from || 1)) * (end - start);
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5].find((size) => (to - from) / size <= 7) ?? 1;
  const ticks = [];
  for (let value = Math.ceil(from / step) * step; value <= to + 1e-9; value += step) ticks.push(value);
  return { place, ticks };
}

export function frontierChart(points, axes, run) {
  const shown = points.filter(({ x, y }) => x !== null && y !== null);
  if (!shown.length) return null;
  const narrow = globalThis.innerWidth < 640;
  const [width, height] = narrow ? [360, 340] : [900, 400];
  const x = scaleOf(shown.flatMap((p) => [p.x, ...(p.x_range ?? [])]), 52, width - 16);
  const y = scaleOf(shown.flatMap((p) => [p.y, ...(p.y_range ?? [])]), height - 44, 30);
  const parts = [];
  for (const tick of x.ticks) {
    parts.push(svg("line", { class: "grid", x1: x.place(tick), x2: x.place(tick), y1: 30, y2: height - 44 }));
    parts.push(svg("text", { class: "tick", x: x.place(tick), y: height - 28, "text-anchor": "middle" }, number(tick, 2)));
  }
  for (const tick of y.ticks) {
    parts.push(svg("line", { class: "grid", x1: 52, x2: width - 16, y1: y.place(tick), y2: y.place(tick) }));
    parts.push(svg("text", { class: "tick", x: 46, y: y.place(tick) + 4, "text-anchor": "end" }, number(tick, 2)));
  }
  parts.push(svg("text", { class: "label", x: width - 16, y: height - 8, "text-anchor": "end" }, `${axes[0]} →`));
  parts.push(svg("text", { class: "label", x: 4, y: 12 }, `↑ ${axes[1]}, colour: ${axes[2]}`));
  for (const p of shown) {
    const [px, py] = [x.place(p.x), y.place(p.y)];
    const bar = (x1, y1, x2, y2) => parts.push(svg("line", { class: "bar", x1, y1, x2, y2 }));
    if (p.x_range) bar(x.place(p.x_range[0]), py, x.place(p.x_range[1]), py);
    if (p.y_range) bar(px, y.place(p.y_range[0]), px, y.place(p.y_range[1]));
  }
  const named = shown.length <= MOST_NAMED && !narrow;
  const taken = [];
  for (const p of shown) {
    const [px, py] = [x.place(p.x), y.place(p.y)];
    const words = `${p.arm}: ${axes[1]} ${number(p.y)}, ${axes[0]} ${number(p.x)}, ${axes[2]} ${number(p.colour)}`;
    const link = svg("a", { href: addressOf({ page: "rows", run, ...p.behind }), "aria-label": `${words}. Show its rows.` },
      svg("title", null, words),
      svg("path", { class: "point", d: SHAPES[shapeOf(p)], transform: `translate(${px} ${py})`, fill: p.fill }));
    if (named) {
      const size = 6.3 * p.arm.length;
      const free = SPOTS.map(([dx, dy, anchor]) => [px + dx, py + dy, anchor]).find(([lx, ly, anchor]) => {
        const from = anchor === "start" ? lx : anchor === "end" ? lx - size : lx - size / 2;
        const box = [from, ly - 11, from + size, ly + 3];
        const clear = taken.every((o) => box[2] < o[0] || box[0] > o[2] || box[3] < o[1] || box[1] > o[3]);
        const away = shown.every((q) => q === p || Math.abs(x.place(q.x) - (from + size / 2)) > size / 2 + 7 || Math.abs(y.place(q.y) - ly + 4) > 11);
        if (from < 52 || box[2] > width - 4 || box[1] < 16 || box[3] > height - 44 || !clear || !away) return false;
        taken.push(box);
        return true;
      });
      if (free && Math.hypot(free[0] - px, free[1] - py) > 22) parts.push(svg("line", { class: "leader", x1: px, y1: py, x2: free[0], y2: free[1] - 4 }));
      if (free) link.append(svg("text", { class: "name", x: free[0], y: free[1], "text-anchor": free[2] }, p.arm));
    }
    parts.push(link);
  }
  return svg("svg", { class: "chart frontier", viewBox: `0 0 ${width} ${height}`, role: "group",
    "aria-label": `${axes[1]} against ${axes[0]}: ${shown.length} arms, each a link to its rows` }, parts);
}
