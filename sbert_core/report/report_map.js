"use strict";
// The map of the report: a scatter plot on a canvas, without a library.

// Colours and shapes depend only on the cluster's number, so that a cluster looks the same in every report. These
// twelve colours are distinct (CIE76 over 18) with normal sight, protanopia and deuteranopia; then shapes change.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#7c4523", "#30c2d8", "#764065", "#95bd69", "#b688fe",
  "#3347b2", "#f996a6", "#29839c"];
const GREY = "#9a9fa6";
const SHAPES = ["round", "square", "triangle"];
const NOISE = -1;

const shapeOf = (n) => (n < 0 ? "round" : SHAPES[Math.floor(n / COLOURS.length) % SHAPES.length]);
const channels = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));

/** Red, green and blue of a cluster; on a dark page a little lighter. */
function colourOf(n, dark) {
  const parts = channels(n < 0 ? GREY : COLOURS[n % COLOURS.length]);
  return dark && n >= 0 ? parts.map((part) => Math.round(part + (255 - part) * 0.22)) : parts;
}

/**
 * Draws `points` (columns x, y, cluster, text, id) on the canvas.
 *
 * `state` has the state of the page: nameOf(n), sizeOf(n), isLit(n), isChosen(n), isFiltered(), isDark(). `onPick(n)`
 * is called with the cluster that was clicked, or null; `onHover(index, x, y, touched)` with the point under the
 * pointer, or -1.
 */
function makeMap(canvas, points, state, onPick, onHover) {
  const PAD = 36, MAX_ZOOM = 400;
  const STRETCH = 1.35; // maximum ratio of the units of the axes, to fill the panel
  const context = canvas.getContext("2d");
  const total = points.x.length;
  const [right, top] = [points.x, points.y].map((axis) => axis.reduce((high, value) => Math.max(high, value), 0));
  const order = [...points.cluster.keys()].sort((a, b) => (points.cluster[a] >= 0) - (points.cluster[b] >= 0) || a - b);
  const view = { zoom: 1, x: 0, y: 0 }; // x and y: offset in pixels
  let width = 0, height = 0, ratio = 1, unitX = 1, unitY = 1; // in CSS pixels, except the ratio
  let pixels = null, hovered = -1, labels = [], waiting = false;

  const placeX = (x) => (width / 2 + (x - right / 2) * unitX) * view.zoom + view.x;
  const placeY = (y) => (height / 2 - (y - top / 2) * unitY) * view.zoom + view.y;
  const radius = () => Math.min(8, Math.max(1.6, Math.min(4.5, 150 / Math.sqrt(total + 400))) * view.zoom ** 0.28);

  const members = new Map();
  points.cluster.forEach((n, index) => (members.has(n) ? members.get(n).push(index) : members.set(n, [index])));
  const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
  const centre = (n, axis) => median(members.get(n).map((index) => axis[index]));
  const centres = [...members.keys()]
    .filter((n) => n !== NOISE)
    .map((n) => ({ n, x: centre(n, points.x), y: centre(n, points.y), size: state.sizeOf(n) ?? members.get(n).length }))
    .sort((a, b) => b.size - a.size || a.n - b.n);

  // ---- drawing ----

  function resize() {
    const box = canvas.getBoundingClientRect();
    if (!box.width || !box.height) return;
    ratio = window.devicePixelRatio || 1;
    [width, height] = [box.width, box.height];
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    pixels = context.createImageData(canvas.width, canvas.height);
    const [fitX, fitY] = [(width - 2 * PAD) / (right || 1), (height - 2 * PAD) / (top || 1)];
    [unitX, unitY] = [Math.min(fitX, fitY * STRETCH), Math.min(fitY, fitX * STRETCH)];
    move(0, 0);
    draw();
  }

  /** The share of each pixel that a dot of this shape covers, 0 to 255. */
  const stamps = new Map();
  function makeStamp(shape, size) {
    const key = `${shape} ${size.toFixed(1)}`;
    if (stamps.has(key)) return stamps.get(key);
    const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const side = 2 * Math.ceil(1.25 * size + 1), middle = side / 2;
    pen.canvas.width = pen.canvas.height = side;
    if (shape === "round") pen.arc(middle, middle, size, 0, 7);
    else if (shape === "square") pen.rect(middle - size * 0.88, middle - size * 0.88, size * 1.76, size * 1.76);
    else for (const angle of [-90, 30, 150].map((degrees) => (degrees * Math.PI) / 180)) {
      pen.lineTo(middle + 1.25 * size * Math.cos(angle), middle + 1.25 * size * Math.sin(angle));
    }
    pen.fill();
    const stamp = { side, cover: pen.getImageData(0, 0, side, side).data.filter((_, at) => at % 4 === 3) };
    stamps.set(key, stamp);
    return stamp;
  }

  /**
   * Blends the dots of the wanted clusters into `pixels`. Without a graphics card 20,000 canvas calls take a tenth of a
   * second, and this takes a few milliseconds.
   */
  function drawPoints(wanted, size, paper) {
    const { data, width: across, height: down } = pixels;
    const looks = new Map();
    for (const index of order) {
      const n = points.cluster[index];
      if (!looks.has(n)) {
        let colour = wanted(n) ? colourOf(n, state.isDark()) : null;
        // Faded dots are pale but opaque, so that overlapping ones do not get darker.
        if (colour && paper) colour = colour.map((part, at) => part * 0.2 + paper[at] * 0.8);
        looks.set(n, colour && { colour, ...makeStamp(shapeOf(n), (n < 0 ? 0.8 : 1) * size * ratio) });
      }
      const look = looks.get(n);
      if (!look) continue;
      const { side, cover, colour: [red, green, blue] } = look;
      const left = Math.round(placeX(points.x[index]) * ratio - side / 2);
      const upper = Math.round(placeY(points.y[index]) * ratio - side / 2);
      if (left <= -side || upper <= -side || left >= across || upper >= down) continue;
      for (let row = Math.max(0, -upper); row < side && upper + row < down; row++) {
        for (let column = Math.max(0, -left); column < side && left + column < across; column++) {
          const share = cover[row * side + column] / 290; // slightly transparent, so that dense regions are darker
          if (share === 0) continue;
          const at = 4 * ((upper + row) * across + left + column);
          data[at] += (red - data[at]) * share;
          data[at + 1] += (green - data[at + 1]) * share;
          data[at + 2] += (blue - data[at + 2]) * share;
        }
      }
    }
  }

  /** Names at the centres of clusters, largest clusters first, where there is space. */
  function drawLabels(style) {
    labels = [];
    const room = Math.max(6, Math.floor((width * height) / 15000));
    context.font = `600 12.5px ${style.fontFamily}`;
    context.textBaseline = "middle";
    context.lineJoin = "round";
    context.lineWidth = 4;
    context.strokeStyle = style.backgroundColor;
    context.fillStyle = style.color;
    for (const { n, x, y } of centres) {
      if (labels.length >= room) break;
      const [at, middle] = [placeX(x), placeY(y)];
      if (!state.isLit(n) || at < 0 || at > width || middle < 0 || middle > height) continue;
      const letters = [...state.nameOf(n)];
      const text = letters.length > 30 ? letters.slice(0, 29).join("").trimEnd() + "…" : letters.join("");
      const half = context.measureText(text).width / 2;
      const x0 = Math.min(Math.max(at, half + 8), width - half - 8);
      // The name of the selected cluster is above its dots. Other names move by a line to avoid larger ones.
      for (const shift of state.isChosen(n) ? [-radius() - 16] : [0, -18, 18]) {
        const y0 = Math.min(Math.max(middle + shift, 12), height - 12);
        const box = { n, text, left: x0 - half - 5, right: x0 + half + 5, top: y0 - 9, bottom: y0 + 9 };
        const covers = (l) => l.left < box.right && box.left < l.right && l.top < box.bottom && box.top < l.bottom;
        if (labels.some(covers)) continue;
        labels.push(box);
        break;
      }
    }
    for (const { text, left, top: upper } of labels) {
      context.strokeText(text, left + 5, upper + 9);
      context.fillText(text, left + 5, upper + 9);
    }
  }

  function draw() {
    waiting = false;
    if (!pixels) return;
    const style = getComputedStyle(canvas);
    const paper = style.backgroundColor.match(/[\d.]+/g).slice(0, 3).map(Number);
    new Uint32Array(pixels.data.buffer).fill((255 << 24) | (paper[2] << 16) | (paper[1] << 8) | paper[0]);
    if (state.isFiltered()) drawPoints((n) => !state.isLit(n), radius(), paper);
    drawPoints(state.isLit, radius() * (state.isFiltered() ? 1.15 : 1), null);
    context.putImageData(pixels, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (hovered >= 0) {
      context.beginPath();
      context.arc(placeX(points.x[hovered]), placeY(points.y[hovered]), radius() + 3, 0, 7);
      context.strokeStyle = style.color;
      context.lineWidth = 1.5;
      context.stroke();
    }
    drawLabels(style);
  }
  function schedule() {
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  }

  // ---- moving ----

  /** Moves the map, with some of it always in view. */
  function move(dx, dy) {
    view.x = Math.min(Math.max(view.x + dx, width * (0.5 - view.zoom)), width * 0.5);
    view.y = Math.min(Math.max(view.y + dy, height * (0.5 - view.zoom)), height * 0.5);
    // Before the map is zoomed in, a vertical swipe scrolls the page.
    canvas.style.touchAction = view.zoom > 1 ? "none" : "pan-y";
    schedule();
  }
  function zoom(factor, x = width / 2, y = height / 2) {
    const next = Math.min(MAX_ZOOM, Math.max(1, view.zoom * factor));
    view.x = next === 1 ? 0 : x - ((x - view.x) * next) / view.zoom;
    view.y = next === 1 ? 0 : y - ((y - view.y) * next) / view.zoom;
    view.zoom = next;
    move(0, 0);
  }
  function reset() {
    Object.assign(view, { zoom: 1, x: 0, y: 0 });
    move(0, 0);
  }
  /** Fills the view with the middle of a cluster; its outliers may be outside. */
  function zoomTo(n) {
    if (!members.has(n)) return;
    reset();
    const middle = (place, axis) => {
      const values = members.get(n).map((index) => place(axis[index])).sort((a, b) => a - b);
      return [0.12, 0.88].map((share) => values[Math.round(share * (values.length - 1))]);
    };
    const [[x0, x1], [y0, y1]] = [middle(placeX, points.x), middle(placeY, points.y)];
    view.zoom = Math.min(40, Math.max(1, 0.65 * Math.min(width / (x1 - x0 + 1), height / (y1 - y0 + 1))));
    move(width / 2 - ((x0 + x1) / 2) * view.zoom, height / 2 - ((y0 + y1) / 2) * view.zoom);
  }

  // ---- pointers and keys ----

  function findPoint(x, y, maxDistance) {
    let best = -1, nearest = maxDistance * maxDistance;
    for (let index = 0; index < total; index++) {
      const dx = placeX(points.x[index]) - x, dy = placeY(points.y[index]) - y;
      const distance = dx * dx + dy * dy;
      if (distance < nearest && state.isLit(points.cluster[index])) [best, nearest] = [index, distance];
    }
    return best;
  }
  const findLabel = (x, y) => labels.find((l) => l.left < x && x < l.right && l.top < y && y < l.bottom);

  function hover(event, maxDistance = 0) {
    const index = event ? findPoint(event.offsetX, event.offsetY, maxDistance) : -1;
    const isOver = index >= 0 || (event !== null && findLabel(event.offsetX, event.offsetY) !== undefined);
    canvas.classList.toggle("over", isOver);
    if (index !== hovered) schedule();
    hovered = index;
    onHover(index, event?.clientX, event?.clientY, event?.pointerType === "touch");
  }

  const fingers = new Map();
  let dragged = false;
  const hitRadius = (event) => radius() + (event.pointerType === "mouse" ? 6 : 16);
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    dragged = fingers.size > 0;
    const [x, y] = [event.offsetX, event.offsetY];
    fingers.set(event.pointerId, { x, y, startX: x, startY: y });
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = { x: event.offsetX, y: event.offsetY }, before = fingers.get(event.pointerId);
    if (!before) return hover(event, hitRadius(event));
    if (Math.hypot(now.x - before.startX, now.y - before.startY) > 5) dragged = true;
    if (!dragged) return;
    hover(null);
    canvas.classList.add("dragging");
    const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const apart = (finger) => Math.hypot(finger.x - other.x, finger.y - other.y) || 1;
      zoom(apart(now) / apart(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
    }
    move((now.x - before.x) / fingers.size, (now.y - before.y) / fingers.size);
    Object.assign(before, now);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (dragged || !fingers.has(event.pointerId)) return;
    const index = findPoint(event.offsetX, event.offsetY, hitRadius(event));
    onPick(index >= 0 ? points.cluster[index] : (findLabel(event.offsetX, event.offsetY)?.n ?? null));
    if (event.pointerType !== "mouse") hover(event, hitRadius(event));
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, (event) => {
      fingers.delete(event.pointerId);
      canvas.classList.remove("dragging");
    });
  }
  canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hover(null));
  window.addEventListener("scroll", () => hover(null), { passive: true });
  canvas.addEventListener("wheel", (event) => {
    if (event.deltaY > 0 && view.zoom === 1) return; // already zoomed out: scroll the page
    event.preventDefault();
    const turned = Math.max(-240, Math.min(240, event.deltaY * (event.deltaMode === 1 ? 30 : 1)));
    zoom(Math.exp(-turned * (event.ctrlKey ? 0.01 : 0.002)), event.offsetX, event.offsetY);
    hover(null);
  }, { passive: false });
  const keys = {
    ArrowLeft: () => move(60, 0), ArrowRight: () => move(-60, 0),
    ArrowUp: () => move(0, 60), ArrowDown: () => move(0, -60),
    "+": () => zoom(1.4), "=": () => zoom(1.4), "-": () => zoom(1 / 1.4), 0: reset,
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  new ResizeObserver(resize).observe(canvas);
  return { draw, schedule, reset, zoom, zoomTo, hide: () => hover(null) };
}
