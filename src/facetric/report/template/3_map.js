// The map: points on a canvas, thumbnails where they find room, pan and zoom by mouse, touch and keyboard.

const map = (() => {
  const canvas = byId("map-canvas");
  const context = canvas.getContext("2d");
  const view = { x: 0, y: 0, scale: 1, fitted: 1 }; // world point at the center, pixels per world unit
  const state = { coloring: "class", images: true, hovered: -1, chosen: -1, highlighted: null, keyboard: false };
  let width = 0, height = 0, order = new Int32Array(0), colors = [], codes = new Int32Array(n), frame = 0;
  const bounds = boundsOf(range(n));

  function range(count) {
    return Array.from({ length: count }, (_, i) => i);
  }

  function boundsOf(images) {
    const box = { left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity };
    for (const i of images) {
      box.left = Math.min(box.left, positions[2 * i]); box.right = Math.max(box.right, positions[2 * i]);
      box.top = Math.min(box.top, positions[2 * i + 1]); box.bottom = Math.max(box.bottom, positions[2 * i + 1]);
    }
    return box;
  }

  const screenX = (i) => (positions[2 * i] - view.x) * view.scale + width / 2;
  const screenY = (i) => (view.y - positions[2 * i + 1]) * view.scale + height / 2;

  // Thumbnails appear when the points are SMALLEST pixels apart on average, and grow more slowly than the map: images lie in
  // clumps, and more of a clump can be seen at once.
  const SMALLEST = 16, LARGEST = Math.min(96, Math.max(56, 1.5 * about.thumbnails.side));
  const apart = () => Math.sqrt((width * height) / Math.max(n, 1)) * (view.scale / view.fitted);
  function thumbnailSide() {
    if (!state.images || !about.thumbnails.n_sheets || apart() < SMALLEST) return 0;
    return Math.min(20 * Math.sqrt(apart() / SMALLEST), LARGEST);
  }

  // The images that are shown as thumbnails: no two overlap by more than a tenth. Decided for half-octaves of zoom and for
  // the whole map, so that panning changes nothing; the first in the data's order wins.
  const roomy = new Map();
  function withRoom(side) {
    const level = Math.floor(2 * Math.log2(view.scale / side));
    if (roomy.has(level)) return roomy.get(level);
    const cell = 0.9 / 2 ** (level / 2), taken = new Map(), kept = [];
    const key = (column, row) => column * 4194304 + row;
    for (let i = 0; i < n; i++) {
      if (thumbnailOf[i] < 0) continue;
      const x = (positions[2 * i] - bounds.left) / cell + 1, y = (positions[2 * i + 1] - bounds.top) / cell + 1;
      const column = Math.floor(x), row = Math.floor(y);
      let free = true;
      for (let c = column - 1; c <= column + 1 && free; c++) {
        for (let r = row - 1; r <= row + 1 && free; r++) {
          const other = taken.get(key(c, r));
          free = !other || Math.abs(other[0] - x) >= 1 || Math.abs(other[1] - y) >= 1;
        }
      }
      if (free) { taken.set(key(column, row), [x, y]); kept.push(i); }
    }
    if (roomy.size > 24) roomy.clear();
    roomy.set(level, new Set(kept));
    return roomy.get(level);
  }

  function recolor() {
    if (state.coloring === "verdict") {
      codes = Int32Array.from(verdictOf);
      colors = VERDICTS.map((verdict) => cssColor("--" + verdict));
    } else {
      codes = Int32Array.from(state.coloring === "cluster" ? clusterOf : classOf, (code) => code % N_COLORS);
      colors = Array.from({ length: N_COLORS }, (_, i) => colorOf(i));
    }
    order = Int32Array.from(range(n)).sort((a, b) => codes[a] - codes[b] || a - b); // wrong ones over right ones
    refresh();
  }

  function refresh() {
    if (!frame) frame = requestAnimationFrame(() => { frame = 0; draw(); });
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.imageSmoothingQuality = "medium";
    const side = thumbnailSide();
    drawPoints();
    const fade = state.chosen >= 0 ? 0.4 : 1; // so that the neighbors stand out
    if (side) for (const i of withRoom(side)) if (visible(i, side)) drawImage(i, side, isFaint(i) ? 0.14 : fade);
    if (state.chosen >= 0) drawNeighbors(Math.max(side, 34));
    if (state.hovered >= 0 && state.hovered !== state.chosen) drawHovered(side);
    if (state.keyboard) drawCrosshair();
  }

  const isFaint = (i) => state.highlighted !== null && !state.highlighted.has(i);
  function visible(i, margin) {
    const x = screenX(i), y = screenY(i);
    return x > -margin && y > -margin && x < width + margin && y < height + margin;
  }

  function drawPoints() {
    const radius = Math.max(1.5, Math.min(6, 0.16 * Math.sqrt((width * height) / Math.max(n, 1)) * Math.sqrt(view.scale / view.fitted)));
    const round = n * Math.min(1, (view.fitted / view.scale) ** 2) < 5000; // about as many are in sight; squares are faster
    for (const faint of state.highlighted === null ? [false] : [true, false]) {
      context.globalAlpha = faint ? 0.16 : state.chosen >= 0 ? 0.5 : 0.9;
      let last = -1;
      context.beginPath();
      for (let at = 0; at < n; at++) {
        const i = order[at];
        if (isFaint(i) !== faint || !visible(i, radius)) continue;
        if (codes[i] !== last) {
          context.fill();
          context.beginPath();
          context.fillStyle = colors[codes[i]];
          last = codes[i];
        }
        const x = screenX(i), y = screenY(i);
        if (round) { context.moveTo(x + radius, y); context.arc(x, y, radius, 0, 7); }
        else context.rect(x - radius, y - radius, 2 * radius, 2 * radius);
      }
      context.fill();
    }
    context.globalAlpha = 1;
  }

  function drawImage(i, side, opacity = 1, frameColor = null) {
    const x = screenX(i) - side / 2, y = screenY(i) - side / 2;
    if (!isDrawable(i)) return false;
    if (!isFaint(i) && opacity < 1) { // a picture that steps back still covers the points
      context.fillStyle = cssColor("--map");
      context.fillRect(x, y, side, side);
    }
    context.globalAlpha = opacity;
    drawThumbnail(context, i, x, y, side);
    context.lineWidth = side > 40 || frameColor ? 3 : 2;
    context.strokeStyle = frameColor || colors[codes[i]];
    context.strokeRect(x, y, side, side);
    context.globalAlpha = 1;
    return true;
  }

  function ring(i, radius, color, thickness) {
    context.beginPath();
    context.arc(screenX(i), screenY(i), radius, 0, 7);
    context.lineWidth = thickness;
    context.strokeStyle = color;
    context.stroke();
  }

  function drawHovered(side) {
    const ink = cssColor("--ink");
    if (side && withRoom(side).has(state.hovered)) drawImage(state.hovered, side, 1, ink);
    else ring(state.hovered, 9, ink, 2);
  }

  function drawNeighbors(side) {
    const found = neighborsOf(state.chosen).reverse(); // the nearest is drawn last, on top
    const color = (neighbor) => cssColor(!labeled || neighbor.right ? "--right" : "--wrong");
    for (const neighbor of found) {
      context.beginPath();
      context.moveTo(screenX(state.chosen), screenY(state.chosen));
      context.lineTo(screenX(neighbor.image), screenY(neighbor.image));
      context.lineWidth = 2;
      context.setLineDash(!labeled || neighbor.right ? [] : [5, 4]);
      context.strokeStyle = color(neighbor);
      context.stroke();
    }
    context.setLineDash([]);
    for (const neighbor of found) {
      if (!state.images || !drawImage(neighbor.image, side, 1, color(neighbor))) ring(neighbor.image, 7, color(neighbor), 3);
    }
    const large = Math.min(side * 1.35, LARGEST * 1.35);
    if (!state.images || !drawImage(state.chosen, large, 1, cssColor("--ink"))) ring(state.chosen, 10, cssColor("--ink"), 4);
  }

  function drawCrosshair() {
    context.strokeStyle = cssColor("--ink");
    context.lineWidth = 1.5;
    context.beginPath();
    for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
      context.moveTo(width / 2 + 5 * dx, height / 2 + 5 * dy);
      context.lineTo(width / 2 + 15 * dx, height / 2 + 15 * dy);
    }
    context.stroke();
  }

  // The image at a screen position: a thumbnail that covers it, else the nearest point within `radius` pixels.
  function imageAt(x, y, radius = 14) {
    const side = thumbnailSide();
    let best = -1, nearest = radius * radius;
    const consider = (i, half) => {
      const dx = screenX(i) - x, dy = screenY(i) - y;
      if (half && (Math.abs(dx) > half || Math.abs(dy) > half)) return;
      const squared = half ? -1 / (1 + dx * dx + dy * dy) : dx * dx + dy * dy;
      if (squared < nearest) { nearest = squared; best = i; }
    };
    for (let i = 0; i < n; i++) if (!isFaint(i)) consider(i, 0);
    if (side) for (const i of withRoom(side)) if (!isFaint(i)) consider(i, side / 2);
    if (state.chosen >= 0 && state.images) {
      for (const neighbor of neighborsOf(state.chosen)) consider(neighbor.image, Math.max(side, 34) / 2);
    }
    return best;
  }

  function zoom(factor, x = width / 2, y = height / 2) {
    const before = view.scale;
    view.scale = Math.min(Math.max(before * factor, view.fitted * 0.8), view.fitted * 4000);
    view.x += (x - width / 2) * (1 / before - 1 / view.scale);
    view.y -= (y - height / 2) * (1 / before - 1 / view.scale);
    refresh();
    return view.scale !== before;
  }

  function pan(dx, dy) {
    view.x = Math.min(Math.max(view.x - dx / view.scale, bounds.left), bounds.right);
    view.y = Math.min(Math.max(view.y + dy / view.scale, bounds.top), bounds.bottom);
    refresh();
  }

  function fit(images) {
    const box = images ? boundsOf(images) : bounds;
    if (!n) return;
    const scaleFor = (area, margin) => Math.min(
      (width - margin) / Math.max(area.right - area.left, 1e-6), (height - margin) / Math.max(area.bottom - area.top, 1e-6));
    view.fitted = Math.min(scaleFor(bounds, Math.min(80, width / 4)), 1e6);
    view.scale = images ? Math.min(scaleFor(box, Math.min(200, width / 2)), view.fitted * 40) : view.fitted;
    view.x = (box.left + box.right) / 2;
    view.y = (box.top + box.bottom) / 2;
    refresh();
  }

  function resize() {
    const ratio = window.devicePixelRatio || 1, first = width === 0, wasFitted = view.scale === view.fitted;
    width = canvas.clientWidth;
    height = canvas.clientHeight;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    roomy.clear();
    if (first || wasFitted) fit();
    refresh();
  }

  // Center an image; zoom in when others would cover it.
  function reveal(image) {
    view.x = positions[2 * image];
    view.y = positions[2 * image + 1];
    view.scale *= Math.max(1, 4 * SMALLEST / apart());
    refresh();
  }

  new ResizeObserver(resize).observe(canvas);
  document.addEventListener("sheet", refresh);
  return { canvas, state, view, recolor, refresh, imageAt, zoom, pan, fit, reveal, resize, visible, screenX, screenY, size: () => ({ width, height }) };
})();
