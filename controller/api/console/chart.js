// Line chart as SVG, with a sentence for readers of the page who do not see it.

import { el, svg } from "./dom.js";

const WIDTH = 720;
const HEIGHT = 200;
const EDGE = { left: 62, right: 8, top: 10, bottom: 26 };

/** Returns at most two points, the lowest and the highest, for each column of the chart. */
function thin(points, columns) {
  if (points.length <= 2 * columns) return points;
  const [first, last] = [points[0][0], points[points.length - 1][0]];
  const buckets = new Map();
  for (const point of points) {
    const bucket = Math.floor(((point[0] - first) / (last - first || 1)) * columns);
    const found = buckets.get(bucket);
    if (found === undefined) buckets.set(bucket, [point, point]);
    else if (point[1] < found[0][1]) found[0] = point;
    else if (point[1] > found[1][1]) found[1] = point;
  }
  return [...buckets.values()].flatMap(([low, high]) => (low === high ? [low] : [low, high].sort((a, b) => a[0] - b[0])));
}

const short = (value) => {
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.01 || size >= 1e6)) return value.toExponential(1);
  return value.toLocaleString("en", { maximumFractionDigits: size < 10 ? 2 : 0 });
};

/** Returns a chart of `[x, y]` points in order of x. `breaks` are values of x with a vertical line and a name. */
export function lineChart(title, points, { unit = "", xName, breaks = [] }) {
  const [first, last] = [points[0], points[points.length - 1]];
  const values = points.map((point) => point[1]);
  let low = values.reduce((a, b) => Math.min(a, b));
  let high = values.reduce((a, b) => Math.max(a, b));
  const sentence = `${title}: ${short(first[1])}${unit} at ${xName} ${short(first[0])}, ${short(last[1])}${unit} at ${xName} ${short(last[0])}; lowest ${short(low)}${unit}, highest ${short(high)}${unit}`;
  if (low === high) [low, high] = [low - 1, high + 1];
  const span = last[0] - first[0] || 1;
  const x = (value) => EDGE.left + ((value - first[0]) / span) * (WIDTH - EDGE.left - EDGE.right);
  const y = (value) => HEIGHT - EDGE.bottom - ((value - low) / (high - low)) * (HEIGHT - EDGE.top - EDGE.bottom);
  const line = thin(points, WIDTH)
    .map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`)
    .join(" ");
  const label = (text, at, anchor, height) => svg("text", { x: at, y: height, "text-anchor": anchor, class: "axis" }, text);
  const lines = breaks
    .filter((found) => found.at > first[0] && found.at <= last[0])
    .map((found) => [
      svg("line", { x1: x(found.at), x2: x(found.at), y1: EDGE.top, y2: HEIGHT - EDGE.bottom, class: "break" }),
      x(found.at) > WIDTH * 0.8
        ? label(found.name, x(found.at) - 3, "end", EDGE.top + 10)
        : label(found.name, x(found.at) + 3, "start", EDGE.top + 10),
    ]);
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": sentence, class: "chart" },
    svg("path", { d: `M${EDGE.left} ${EDGE.top}V${HEIGHT - EDGE.bottom}H${WIDTH - EDGE.right}`, class: "frame" }),
    lines,
    points.length === 1 ? svg("circle", { cx: x(first[0]), cy: y(first[1]), r: 3, class: "dot" }) : svg("polyline", { points: line, class: "line" }),
    label(`${short(high)}${unit}`, EDGE.left - 5, "end", EDGE.top + 8),
    label(`${short(low)}${unit}`, EDGE.left - 5, "end", HEIGHT - EDGE.bottom),
    label(short(first[0]), EDGE.left, "start", HEIGHT - 8),
    label(`${xName} ${short(last[0])}`, WIDTH - EDGE.right, "end", HEIGHT - 8),
  );
  return el("figure", {}, el("figcaption", {}, title), picture);
}
