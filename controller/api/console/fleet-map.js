// Map of the nodes on one canvas. It draws what is visible, so that 10,000 nodes scroll as fast as ten.

/** Marks of nodes, in the order of the legend. Each has a shape of its own. */
export const MARKS = [
  { key: "lost", name: "lost", doc: "the agent has been silent beyond the limit" },
  { key: "faulty", name: "faulty, in use", doc: "a case blames the node, and the cordon limit permits no cordon" },
  { key: "fencing", name: "fencing", doc: "ranks of an ended generation are not confirmed as gone" },
  { key: "cordoned", name: "cordoned", doc: "no new ranks are placed on the node" },
  { key: "away", name: "not schedulable", doc: "the agent has not joined, or the node is under examination" },
  { key: "busy", name: "in use", doc: "a job has ranks on the node" },
  { key: "idle", name: "idle", doc: "the node takes ranks and has none" },
];

/** Returns the mark of a node. */
export function markOf(node) {
  if (node.state !== "healthy") return node.state;
  if (node.faulty_in_use !== null) return "faulty";
  if (!node.is_schedulable) return "away";
  return node.job === null ? "idle" : "busy";
}

/** Returns the outline of a mark within a square, as a list of polygons with their form. */
export function shapeOf(mark, x, y, size) {
  const gap = size * 0.12;
  const [left, top, right, bottom] = [x + gap, y + gap, x + size - gap, y + size - gap];
  const [middle, centre] = [x + size / 2, y + size / 2];
  const square = [
    [left, top],
    [right, top],
    [right, bottom],
    [left, bottom],
  ];
  switch (mark) {
    case "busy":
      return [{ points: square, isFilled: true }];
    case "idle":
      return [{ points: square, isClosed: true }];
    case "cordoned":
      return [
        { points: square, isClosed: true },
        {
          points: [
            [left, bottom],
            [right, top],
          ],
        },
      ];
    case "lost":
      return [
        {
          points: [
            [left, top],
            [right, bottom],
          ],
        },
        {
          points: [
            [right, top],
            [left, bottom],
          ],
        },
      ];
    case "fencing":
      return [
        {
          points: [
            [middle, top],
            [right, centre],
            [middle, bottom],
            [left, centre],
          ],
          isClosed: true,
        },
      ];
    case "faulty":
      return [
        {
          points: [
            [middle, top],
            [right, bottom],
            [left, bottom],
          ],
          isFilled: true,
        },
      ];
    default:
      return [
        {
          points: [
            [left, centre],
            [right, centre],
          ],
        },
        {
          points: [
            [left, bottom],
            [right, bottom],
          ],
        },
      ];
  }
}

const HEADING = 20;
const GAP = 14;
const MARGIN = 6;
const names = new Intl.Collator("en", { numeric: true });

/** Size of a node on the map: larger where there are few. */
function tileSize(count) {
  if (count <= 100) return 26;
  return count <= 1000 ? 19 : 14;
}

/** Places groups of nodes in rows of blocks. */
function arrange(nodes, width) {
  const groups = new Map();
  for (const node of nodes) {
    const group = groups.get(node.failure_domain);
    if (group === undefined) groups.set(node.failure_domain, [node]);
    else group.push(node);
  }
  const keys = [...groups.keys()].sort(names.compare);
  const tile = tileSize(nodes.length);
  const room = Math.max(tile, width - 2 * MARGIN);
  const largest = Math.max(1, ...[...groups.values()].map((group) => group.length));
  const widest = Math.floor(room / tile);
  // Blocks are as wide as they fill the rows, and no wider than the largest group.
  const least = Math.min(widest, Math.max(Math.ceil(130 / tile), Math.ceil(Math.sqrt(largest * 3))));
  const perRow = keys.length <= 1 ? 1 : Math.max(1, Math.floor((room + GAP) / (least * tile + GAP)));
  const filled = Math.floor((room - GAP * (perRow - 1)) / perRow / tile);
  const columns = Math.max(least, Math.min(filled, largest));
  const blockWidth = columns * tile;
  const blocks = [];
  let y = MARGIN;
  for (let start = 0; start < keys.length; start += perRow) {
    const row = keys.slice(start, start + perRow);
    let height = 0;
    row.forEach((key, place) => {
      const members = groups.get(key).sort((a, b) => names.compare(a.name, b.name));
      const block = { key, members, columns, x: MARGIN + place * (blockWidth + GAP), y, width: blockWidth };
      block.height = HEADING + Math.ceil(members.length / columns) * tile;
      height = Math.max(height, block.height);
      blocks.push(block);
    });
    y += height + GAP;
  }
  return { blocks, tile, height: y - GAP + MARGIN };
}

/** Map of the fleet. `onSelect` gets the node that the pointer or the keyboard selects, `onOpen` one that is opened. */
export class FleetMap {
  constructor({ frame, canvas, spacer, signal, onSelect, onOpen }) {
    Object.assign(this, { frame, canvas, spacer, onSelect, onOpen });
    this.nodes = [];
    this.layout = { blocks: [], tile: 14, height: 0 };
    this.selected = null;
    this.isShown = () => true;
    this.isPlanned = false;
    this.colours = null;
    this.sprites = new Map();
    const listen = (target, event, action) => target.addEventListener(event, action, { signal });
    listen(frame, "scroll", () => this.plan());
    listen(frame, "keydown", (event) => this.onKey(event));
    listen(frame, "focus", () => this.plan());
    listen(frame, "blur", () => this.plan());
    listen(canvas, "click", (event) => this.onPointer(event, true));
    listen(canvas, "pointermove", (event) => event.pointerType === "mouse" && this.onPointer(event, false));
    listen(matchMedia("(prefers-color-scheme: dark)"), "change", () => {
      this.colours = null;
      this.sprites.clear();
      this.plan();
    });
    const observer = new ResizeObserver(() => this.arrange());
    observer.observe(frame);
    signal.addEventListener("abort", () => observer.disconnect(), { once: true });
  }

  /** Shows these nodes; the selection stays on the node of its name. */
  show(nodes) {
    this.nodes = nodes;
    const name = this.selected?.name;
    this.selected = name === undefined ? null : (nodes.find((node) => node.name === name) ?? null);
    this.arrange();
  }

  /** Dims the nodes for which the function returns false. */
  filter(isShown) {
    this.isShown = isShown;
    this.plan();
  }

  arrange() {
    const width = this.frame.clientWidth;
    if (width === 0) return;
    this.layout = arrange(this.nodes, width);
    this.sprites.clear();
    this.spacer.style.height = `${this.layout.height}px`;
    const height = Math.min(this.frame.clientHeight, Math.max(1, this.layout.height));
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.plan();
  }

  plan() {
    if (this.isPlanned) return;
    this.isPlanned = true;
    requestAnimationFrame(() => {
      this.isPlanned = false;
      this.draw();
    });
  }

  palette() {
    if (this.colours === null) {
      const style = getComputedStyle(document.documentElement);
      const colour = (name) => style.getPropertyValue(name).trim();
      this.colours = Object.fromEntries(MARKS.map(({ key }) => [key, colour(`--mark-${key}`)]));
      Object.assign(this.colours, { text: colour("--text"), quiet: colour("--quiet"), focus: colour("--focus") });
    }
    return this.colours;
  }

  draw() {
    const context = this.canvas.getContext("2d");
    const scale = window.devicePixelRatio || 1;
    const top = this.frame.scrollTop;
    const height = this.canvas.height / scale;
    const { blocks } = this.layout;
    const colours = this.palette();
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.translate(0, -top);
    context.textBaseline = "alphabetic";
    for (const block of blocks) {
      if (block.y + block.height < top || block.y > top + height) continue;
      this.drawHeading(context, block, colours);
      this.drawBlock(context, block, top, top + height);
    }
  }

  drawBlock(context, block, top, bottom) {
    const { tile } = this.layout;
    // Only the rows that are visible.
    const row = (y) => Math.floor((y - block.y - HEADING) / tile);
    const first = Math.max(0, row(top)) * block.columns;
    const end = Math.min(block.members.length, (row(bottom) + 1) * block.columns);
    for (let place = first; place < end; place += 1) {
      const node = block.members[place];
      const x = block.x + (place % block.columns) * tile;
      const y = block.y + HEADING + Math.floor(place / block.columns) * tile;
      const mark = markOf(node);
      const isShown = this.isShown(node, mark);
      if (!isShown) context.globalAlpha = 0.18;
      context.drawImage(this.sprite(mark), x, y, tile, tile);
      if (!isShown) context.globalAlpha = 1;
      if (node !== this.selected) continue;
      context.strokeStyle = this.palette().focus;
      context.lineWidth = 3;
      context.strokeRect(x - 0.5, y - 0.5, tile + 1, tile + 1);
    }
  }

  /** Returns the picture of a mark. It is drawn once, since thousands of paths a frame would not keep up with a finger. */
  sprite(mark) {
    const found = this.sprites.get(mark);
    if (found !== undefined) return found;
    const { tile } = this.layout;
    const scale = window.devicePixelRatio || 1;
    const picture = document.createElement("canvas");
    picture.width = picture.height = Math.ceil(tile * scale);
    const context = picture.getContext("2d");
    context.scale(picture.width / tile, picture.height / tile);
    context.lineWidth = tile > 18 ? 2 : 1.5;
    context.strokeStyle = context.fillStyle = this.palette()[mark] ?? this.palette().text;
    drawShape(context, shapeOf(mark, 0, 0, tile));
    this.sprites.set(mark, picture);
    return picture;
  }

  drawHeading(context, block, colours) {
    const wrong = block.members.filter((node) => !["busy", "idle"].includes(markOf(node))).length;
    const count = wrong === 0 ? `${block.members.length}` : `${wrong} of ${block.members.length} ▲`;
    context.font = "12px system-ui, sans-serif";
    const room = block.width - context.measureText(count).width - 8;
    let name = block.key === "" ? "no failure domain" : block.key;
    while (name.length > 2 && context.measureText(name).width > room) name = `${name.slice(0, -2)}…`;
    context.fillStyle = colours.text;
    context.fillText(name, block.x, block.y + 13);
    context.fillStyle = wrong === 0 ? colours.quiet : colours.lost;
    context.fillText(count, block.x + block.width - context.measureText(count).width, block.y + 13);
  }

  /** Returns the node at a point of the map. */
  at(x, y) {
    const { blocks, tile } = this.layout;
    const block = blocks.find((block) => x >= block.x && x < block.x + block.width && y >= block.y + HEADING && y < block.y + block.height);
    if (block === undefined) return null;
    const place = Math.floor((y - block.y - HEADING) / tile) * block.columns + Math.floor((x - block.x) / tile);
    return block.members[place] ?? null;
  }

  onPointer(event, isClick) {
    const box = this.canvas.getBoundingClientRect();
    const node = this.at(event.clientX - box.left, event.clientY - box.top + this.frame.scrollTop);
    if (node === null || (node === this.selected && !isClick)) return;
    const wasSelected = node === this.selected;
    this.select(node);
    // A finger selects first, so that it need not hit a small square exactly.
    if (isClick && (wasSelected || event.pointerType === "mouse")) this.onOpen(node);
  }

  select(node) {
    this.selected = node;
    this.onSelect(node);
    this.plan();
  }

  /** Returns block and place of the selected node. */
  position() {
    for (const [index, block] of this.layout.blocks.entries()) {
      const place = block.members.indexOf(this.selected);
      if (place >= 0) return { index, block, place };
    }
    return null;
  }

  onKey(event) {
    const { blocks } = this.layout;
    if (event.ctrlKey || event.metaKey || event.altKey || blocks.length === 0) return;
    if (event.key === "Enter" && this.selected !== null) return this.onOpen(this.selected);
    const target = this.neighbour(event.key);
    if (target === null) return;
    event.preventDefault();
    this.select(target);
    this.reveal();
  }

  neighbour(key) {
    const { blocks } = this.layout;
    const first = blocks[0].members[0];
    const lastBlock = blocks[blocks.length - 1];
    if (key === "Home") return first;
    if (key === "End") return lastBlock.members[lastBlock.members.length - 1];
    if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(key)) return null;
    const position = this.position();
    if (position === null) return first;
    const { index, block, place } = position;
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -block.columns, ArrowDown: block.columns }[key];
    const within = block.members[place + by];
    if (within !== undefined) return within;
    const isForward = by > 0;
    // A short last row: down leads to its end before it leaves the block.
    const rowsLeft = Math.floor((block.members.length - 1) / block.columns) - Math.floor(place / block.columns);
    if (key === "ArrowDown" && rowsLeft > 0) return block.members[block.members.length - 1];
    const next = blocks[index + (isForward ? 1 : -1)];
    if (next === undefined) return null;
    return isForward ? next.members[0] : next.members[next.members.length - 1];
  }

  /** Scrolls the frame until the selected node is visible. */
  reveal() {
    const position = this.position();
    if (position === null) return;
    const { block, place } = position;
    const y = block.y + HEADING + Math.floor(place / block.columns) * this.layout.tile;
    const { scrollTop, clientHeight } = this.frame;
    if (y < scrollTop + HEADING) this.frame.scrollTop = Math.max(0, y - HEADING - MARGIN);
    else if (y + this.layout.tile > scrollTop + clientHeight) this.frame.scrollTop = y + this.layout.tile + MARGIN - clientHeight;
  }
}

function drawShape(context, parts) {
  for (const { points, isFilled, isClosed } of parts) {
    context.beginPath();
    points.forEach(([x, y], place) => (place === 0 ? context.moveTo(x, y) : context.lineTo(x, y)));
    if (isFilled || isClosed) context.closePath();
    if (isFilled) context.fill();
    else context.stroke();
  }
}
