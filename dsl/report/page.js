"use strict";
// Draws the data of a report. One selection, a set of tasks, is shown by every panel: hovering shows one, a click keeps it.

const $ = (query) => document.querySelector(query);
const NS = ["B", "KiB", "MiB", "GiB", "TiB"];

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function duration(us) {
  if (us === null || us === undefined) return "";
  const [value, unit] = us >= 1e6 ? [us / 1e6, "s"] : us >= 1e3 ? [us / 1e3, "ms"] : [us, "µs"];
  return `${value >= 100 ? value.toFixed(0) : parseFloat(value.toPrecision(3))} ${unit}`;
}

function bytes(n) {
  let step = 0;
  while (n >= 1024 && step < NS.length - 1) { n /= 1024; step += 1; }
  return `${n >= 100 || step === 0 ? n.toFixed(0) : parseFloat(n.toPrecision(3))} ${NS[step]}`;
}

async function load() {
  const packed = Uint8Array.from(atob($("#data").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const state = { pinned: new Set(), hovered: null, pass: -1, tab: "Kernels", sort: ["time", -1], from: 0, to: 1, graph: null };
let data, top_, succ, color, shows = [];

const selected = () => state.hovered ?? state.pinned;
const timeOf = (task) => task.measured ?? task.cost;
const parentOf = (i) => (data.tasks[i].parent === undefined ? i : parentOf(data.tasks[i].parent));

function hover(tasks) { state.hovered = tasks; refresh(); }
function pin(tasks) {
  state.pinned = new Set(tasks);
  state.hovered = null;
  const parts = [...(state.report ? [`r=${state.report}`] : []), ...(state.pinned.size ? [`t=${[...state.pinned].join(",")}`] : [])];
  history.replaceState(null, "", `#${parts.join("&")}`);
  refresh();
}
function refresh() { for (const show of shows) show(); }

// what everything is derived from

function derive() {
  top_ = data.tasks.map((_, i) => i).filter((i) => data.tasks[i].parent === undefined);
  const writer = new Map();
  succ = data.tasks.map(() => new Set());
  for (const i of top_) {
    for (const b of data.tasks[i].reads) if (writer.has(b)) succ[writer.get(b)].add(i);
    for (const b of data.tasks[i].writes) writer.set(b, i);
  }
  data.end = Math.max(...top_.map((i) => data.tasks[i].end), 1e-9);
  data.waits = eventWaits();
  data.run = pickRun();
  data.ran = new Map(data.run ? data.run.tasks.map(([t, a, b]) => [t, [a, b]]) : []);
  if (data.run) data.end = Math.max(data.end, ...data.run.tasks.map(([, , end]) => end));
  data.lines = new Map(); // "file:line" -> {time, tasks, paths}
  for (const i of top_) {
    const task = data.tasks[i], own = task.paths.length || 1;
    for (const path of task.paths) {
      const seen = new Set();
      for (const [file, line] of data.paths[path]) {
        const key = `${file}:${line}`;
        if (seen.has(key)) continue;
        seen.add(key);
        if (!data.lines.has(key)) data.lines.set(key, { time: 0, tasks: new Set(), own: new Set(), paths: new Set() });
        const entry = data.lines.get(key), inner = data.paths[path].at(-1);
        if (inner[0] === file && inner[1] === line) entry.own.add(i);
        entry.time += timeOf(task) / own;
        entry.tasks.add(i);
        entry.paths.add(path);
      }
    }
  }
}

function eventWaits() { // [task, the one that waits for it], over the plan's events
  const latest = new Map(), recorded = new Map(), open = new Map(), found = [];
  for (const [what, stream, number] of data.plan.steps) {
    if (what === "record") recorded.set(number, latest.get(stream));
    else if (what === "wait") open.set(stream, [...(open.get(stream) ?? []), recorded.get(number)]);
    else {
      for (const from of open.get(stream) ?? []) found.push([from, number]);
      open.delete(stream);
      latest.set(stream, number);
    }
  }
  return found;
}

const intervalOf = (i) => data.ran?.get(i) ?? [data.tasks[i].start, data.tasks[i].end]; // as measured, else as predicted

function pickRun() { // the run of the median length
  const runs = data.runs.filter((run) => run.tasks.length);
  const length = (run) => Math.max(...run.tasks.map(([, , end]) => end));
  return runs.sort((a, b) => length(a) - length(b))[Math.floor(runs.length / 2)];
}

function callPath(path) {
  return data.paths[path].map(([file, line, , , f]) => `${data.files[file].name.split("/").pop()}:${line}${f ? ` ${f}` : ""}`).join(" › ");
}

function describe(i) {
  const t = data.tasks[i];
  const parts = [`t${i}  ${t.label}`, t.name];
  parts.push(`predicted ${duration(t.cost)}${t.measured != null ? `, measured ${duration(t.measured)}` : ""}`);
  if (t.cause) parts.push({ launch: "starts when the host has come to it", stream: `starts after t${t.after} on its stream`, event: `waits for t${t.after} of another stream` }[t.cause]);
  parts.push(`moves at least ${bytes(t.bytes)}, ${t.flops.toLocaleString("en")} flops`);
  if (t.paths.length) parts.push(callPath(t.paths[0]));
  return parts.join("\n");
}

// tip

function tip(event, text) {
  const box = $("#tip");
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  const x = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8), y = event.clientY + 16;
  box.style.left = `${Math.max(4, x)}px`;
  box.style.top = `${y + box.offsetHeight > innerHeight ? Math.max(4, event.clientY - box.offsetHeight - 10) : y}px`;
}

// stands for the context of a canvas; text() is an SVG file of what was drawn

function svgContext(w, h) {
  const parts = [], kept = [], escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  let path = "", clip = "", dash = "", clips = 0;
  const pen = { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, textAlign: "left" };
  const put = (shape, paint, inner) => parts.push(`<${shape} ${paint} opacity="${pen.globalAlpha}"${clip}${inner === undefined ? "/>" : `>${escaped(inner)}</${shape.split(" ")[0]}>`}`);
  const box = (x, y, width, height) => `rect x="${x}" y="${y}" width="${Math.max(width, 0)}" height="${Math.max(height, 0)}"`;
  const filled = () => `fill="${pen.fillStyle}"`, stroked = () => `fill="none" stroke="${pen.strokeStyle}" stroke-width="${pen.lineWidth}"${dash}`;
  return Object.assign(pen, {
    save: () => kept.push([clip, pen.globalAlpha]),
    restore: () => { [clip, pen.globalAlpha] = kept.pop(); },
    beginPath: () => { path = ""; },
    moveTo: (x, y) => { path += `M${x} ${y}`; },
    lineTo: (x, y) => { path += `L${x} ${y}`; },
    bezierCurveTo: (...at) => { path += `C${at.join(" ")}`; },
    rect: (x, y, width, height) => { path += `M${x} ${y}h${width}v${height}h${-width}z`; },
    arc: (x, y, r) => { path += `M${x - r} ${y}a${r} ${r} 0 1 1 ${2 * r} 0a${r} ${r} 0 1 1 ${-2 * r} 0z`; },
    clip: () => { parts.push(`<clipPath id="c${clips}"><path d="${path}"${clip}/></clipPath>`); clip = ` clip-path="url(#c${clips})"`; clips += 1; },
    setLineDash: (lengths) => { dash = lengths.length ? ` stroke-dasharray="${lengths.join(" ")}"` : ""; },
    fill: () => put(`path d="${path}"`, filled()),
    stroke: () => put(`path d="${path}"`, stroked()),
    fillRect: (...at) => put(box(...at), filled()),
    strokeRect: (...at) => put(box(...at), stroked()),
    fillText: (text, x, y) => put(`text x="${x}" y="${y}" text-anchor="${pen.textAlign === "right" ? "end" : "start"}" dominant-baseline="central"`, filled(), text),
    text: () => `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${w} ${h}" width="${w}" height="${h}" font-family="system-ui, sans-serif" font-size="11"><rect width="100%" height="100%" fill="${color.panel}"/>\n${parts.join("\n")}\n</svg>\n`,
  });
}

// canvases: draw(context, width, height) lists what may be hit as [x, y, w, h, tasks, text]. Each has a button, put
// into the head of its panel, that saves it as an SVG file.

function canvas(node, draw, name, head = node.closest(".panel").querySelector("h2")) {
  const area = { hits: [], node };
  area.svg = () => {
    const context = svgContext(node.clientWidth, node.clientHeight);
    draw(context, node.clientWidth, node.clientHeight, []);
    return context.text();
  };
  area.button = element("button", {
    type: "button", class: "svg", text: "SVG", title: "save this drawing as an SVG file", "aria-label": `save the ${name} as an SVG file`,
    onclick: () => element("a", { download: `${name.replaceAll(" ", "-")}.svg`, href: URL.createObjectURL(new Blob([area.svg()], { type: "image/svg+xml" })) }).click(),
  });
  head.append(area.button);
  area.paint = () => {
    const { clientWidth: w, clientHeight: h } = node, ratio = devicePixelRatio || 1;
    if (!w || !h) return;
    if (node.width !== Math.round(w * ratio) || node.height !== Math.round(h * ratio)) {
      node.width = Math.round(w * ratio);
      node.height = Math.round(h * ratio);
    }
    const context = node.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, w, h);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    area.hits = [];
    draw(context, w, h, area.hits);
  };
  area.at = (event) => {
    const box = node.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    for (let i = area.hits.length - 1; i >= 0; i -= 1) {
      const [left, above, w, h] = area.hits[i];
      if (x >= left - 2 && x <= left + Math.max(w, 3) + 1 && y >= above && y <= above + h) return area.hits[i];
    }
    return null;
  };
  let last = null;
  node.addEventListener("mousemove", (event) => {
    if (event.buttons) return;
    const hit = area.at(event);
    tip(event, hit ? hit[5] : "");
    if (hit !== last && (hit?.[4] ?? null) !== (last?.[4] ?? null)) hover(hit ? new Set(hit[4]) : null);
    last = area.at(event);
  });
  node.addEventListener("mouseleave", () => { last = null; tip(null, ""); hover(null); });
  let moved = false;
  node.addEventListener("mousedown", () => { moved = false; });
  node.addEventListener("mousemove", (event) => { if (event.buttons && Math.abs(event.movementX) + Math.abs(event.movementY) > 1) moved = true; });
  node.addEventListener("click", (event) => {
    if (moved) return;
    const hit = area.at(event);
    if (hit && hit[4].length === 1) { state.tab = "Task"; }
    pin(hit ? hit[4] : []);
  });
  new ResizeObserver(area.paint).observe(node);
  shows.push(area.paint);
  return area;
}

function palette() {
  const style = getComputedStyle(document.documentElement);
  color = Object.fromEntries(["ground", "panel", "edge", "text", "faint", "kernel", "library", "control", "hot", "pick", "arrow"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

const BOTTOM = 18;
let LEFT = 66;
const timeX = (us, w) => LEFT + ((us / data.end - state.from) / (state.to - state.from)) * (w - LEFT - 8);

function axis(context, w, h) {
  const span = (state.to - state.from) * data.end, raw = span / Math.max(2, (w - LEFT) / 110);
  const power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  context.textAlign = "left";
  for (let at = Math.ceil((state.from * data.end) / step) * step; at <= state.to * data.end; at += step) {
    const x = timeX(at, w);
    context.fillStyle = color.edge;
    context.fillRect(x, 0, 1, h - BOTTOM);
    context.fillStyle = color.faint;
    context.textAlign = x > w - 50 ? "right" : "left";
    context.fillText(at ? duration(at) : "0", x + (x > w - 50 ? -2 : 2), h - BOTTOM / 2);
  }
}

function zoomable(area) {
  const zoom = (factor, at) => {
    const middle = state.from + (state.to - state.from) * at;
    const span = Math.min(1, Math.max(1e-5, (state.to - state.from) * factor));
    state.from = Math.min(1 - span, Math.max(0, middle - span * at));
    state.to = state.from + span;
    refresh();
  };
  const pan = (share) => {
    const span = state.to - state.from;
    state.from = Math.min(1 - span, Math.max(0, state.from + share * span));
    state.to = state.from + span;
    refresh();
  };
  area.node.addEventListener("wheel", (event) => {
    if (!(event.ctrlKey || event.metaKey || event.altKey)) return;
    event.preventDefault();
    const box = area.node.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, (event.clientX - box.left - LEFT) / (box.width - LEFT))));
  }, { passive: false });
  area.node.addEventListener("mousemove", (event) => { if (event.buttons) pan(-event.movementX / area.node.clientWidth); });
  area.node.addEventListener("dblclick", () => { state.from = 0; state.to = 1; refresh(); });
  area.node.addEventListener("keydown", (event) => {
    if (event.key === "+" || event.key === "=" || event.key === "w") zoom(0.7, 0.5);
    else if (event.key === "-" || event.key === "s") zoom(1.4, 0.5);
    else if (event.key === "a") pan(-0.2);
    else if (event.key === "d") pan(0.2);
    else if (event.key === "0") { state.from = 0; state.to = 1; refresh(); }
  });
}

function bar(context, x, y, w, h, fill, label, left = 0) { // the label stands where the bar is in view, right of left
  context.fillStyle = fill;
  context.fillRect(x, y, Math.max(w, 1), h);
  const from = Math.max(x, left), wide = x + w - from;
  if (label && wide > 40 && h > 9) {
    context.save();
    context.beginPath();
    context.rect(from, y, wide - 3, h);
    context.clip();
    context.fillStyle = "#fff";
    context.textAlign = "left";
    context.fillText(label, from + 4, y + h / 2 + 0.5);
    context.restore();
  }
}

const bars = new Map();
const rowOf = (h, streams) => Math.min(56, Math.max(7, (h - BOTTOM - 4) / streams)); // of one stream

function drawSchedule(context, w, h, hits) {
  const streams = Math.max(1, data.plan.streams), row = rowOf(h, streams), on = selected();
  axis(context, w, h);
  const place = (i, pale) => {
    const t = data.tasks[i], [start, end] = pale ? [t.start, t.end] : intervalOf(i);
    const solid = data.run !== undefined, height = row * (solid ? (pale ? 0.22 : 0.56) : 0.72);
    const y = 4 + t.stream * row + (solid && !pale ? row * 0.3 : row * 0.05);
    const x = timeX(start, w);
    return [x, y, timeX(end, w) - x, height];
  };
  context.save();
  context.beginPath();
  context.rect(LEFT, 0, w - LEFT, h - BOTTOM);
  context.clip();
  bars.clear();
  for (const pale of data.run ? [true, false] : [false]) {
    for (const i of top_) {
      const t = data.tasks[i], [x, y, width, height] = place(i, pale), lit = on.has(i);
      if (x > w || x + width < LEFT) continue;
      context.globalAlpha = (pale ? 0.4 : 1) * (on.size && !lit ? 0.25 : 1);
      bar(context, x, y, width, height, lit && !pale ? color.pick : color[t.kind], pale ? "" : t.label, LEFT);
      if (t.critical && !pale) { context.fillStyle = color.hot; context.fillRect(x, y + height, Math.max(width, 1), 2); }
      hits.push([x, y, width, height, [i], describe(i)]);
      if (!pale) bars.set(i, [x, y, width, height]);
    }
  }
  context.globalAlpha = 1;
  for (const [from, to] of data.waits) {
    if (!bars.has(from) || !bars.has(to)) continue;
    const [x0, y0, w0, h0] = bars.get(from), [x1, y1, , h1] = bars.get(to), lit = on.has(from) || on.has(to);
    context.strokeStyle = lit ? color.pick : color.arrow;
    context.lineWidth = lit ? 1.6 : 0.8;
    context.beginPath();
    context.moveTo(x0 + w0, y0 + h0 / 2);
    context.bezierCurveTo(x0 + w0 + 14, y0 + h0 / 2, x1 - 14, y1 + h1 / 2, x1, y1 + h1 / 2);
    context.stroke();
  }
  context.restore();
  context.textAlign = "left";
  const busy = Array(streams).fill(0);
  for (const i of top_) { const [start, end] = intervalOf(i); busy[data.tasks[i].stream] += end - start; }
  for (let s = 0; s < streams; s += 1) {
    context.fillStyle = color.faint;
    if (row >= 11) context.fillText(`stream ${s}`, 8, 4 + (s + 0.5) * row);
    hits.push([0, 4 + s * row, LEFT, row, top_.filter((i) => data.tasks[i].stream === s), `stream ${s}: busy ${(100 * busy[s] / data.end).toFixed(0)} % of the time`]);
  }
}

function drawMemory(context, w, h, hits) {
  const arena = Math.max(data.memory.arena, data.memory.bound, 1), on = selected();
  axis(context, w, h);
  const y = (byte) => 6 + (1 - byte / arena) * (h - BOTTOM - 8);
  context.save();
  context.beginPath();
  context.rect(LEFT, 0, w - LEFT, h - BOTTOM);
  context.clip();
  const peak = new Set(data.memory.peak);
  data.buffers.forEach((buffer, b) => {
    if (buffer.offset === null || !buffer.bytes) return;
    const users = top_.filter((i) => data.tasks[i].reads.includes(b) || data.tasks[i].writes.includes(b));
    if (!users.length) return;
    const start = Math.min(...users.map((i) => intervalOf(i)[0])), end = Math.max(...users.map((i) => intervalOf(i)[1]));
    const x = timeX(start, w), width = timeX(end, w) - x, above = y(buffer.offset + buffer.bytes), height = y(buffer.offset) - above;
    const lit = users.some((i) => on.has(i));
    context.globalAlpha = on.size && !lit ? 0.2 : 0.85;
    context.fillStyle = lit ? color.pick : `hsl(${(b * 67) % 360} 42% 56%)`;
    context.fillRect(x, above, Math.max(width, 1), Math.max(height - 1, 1));
    if (peak.has(b)) { context.strokeStyle = color.hot; context.strokeRect(x + 0.5, above + 0.5, Math.max(width - 1, 1), Math.max(height - 2, 1)); }
    const writers = users.filter((i) => data.tasks[i].writes.includes(b));
    hits.push([x, above, width, height, users, `b${b}: ${bytes(buffer.bytes)} at ${bytes(buffer.offset)}\nwritten by ${writers.map((i) => `t${i}`).join(", ")}${peak.has(b) ? "\none of those that force the least arena" : ""}`]);
  });
  context.restore();
  context.globalAlpha = 1;
  if (data.memory.bound) {
    const at = y(data.memory.bound);
    context.strokeStyle = color.hot;
    context.setLineDash([5, 3]);
    context.beginPath();
    context.moveTo(LEFT, at);
    context.lineTo(w - 8, at);
    context.stroke();
    context.setLineDash([]);
  }
  context.fillStyle = color.faint;
  context.textAlign = "left";
  context.fillText(data.memory.arena ? bytes(data.memory.arena) : "no arena", 8, 10);
  context.fillText("0 B", 8, h - BOTTOM - 6);
}

// the graph: the nodes after a pass, or the tasks

function taskGraph() {
  const place = new Map(top_.map((i, at) => [i, at])), above = top_.map(() => []);
  top_.forEach((i, at) => { for (const s of succ[i]) above[place.get(s)].push(at); });
  const depth = [], rows = [];
  top_.forEach((_, at) => { const d = 1 + Math.max(-1, ...above[at].map((a) => depth[a])); depth.push(d); (rows[d] ??= []).push(at); });
  const x = Array(top_.length).fill(0);
  for (const row of rows) row.forEach((at, k) => { x[at] = k; });
  for (const row of rows) {
    const wish = (at) => (above[at].length ? above[at].reduce((sum, a) => sum + x[a], 0) / above[at].length : x[at]);
    let least = -Infinity;
    for (const [at, to] of row.map((at) => [at, wish(at)]).sort((p, q) => p[1] - q[1])) { x[at] = Math.max(to, least); least = x[at] + 1; }
  }
  return { tasks: top_.map((i) => [i]), label: top_.map((i) => data.tasks[i].label), text: top_.map(describe), above, x, y: depth, kind: top_.map((i) => data.tasks[i].kind) };
}

function passGraph(pass) {
  const byNode = new Map(), byPath = new Map(), exact = pass === data.passes.filter((p) => !p.same).at(-1);
  const put = (map, key, i) => { if (!map.has(key)) map.set(key, new Set()); map.get(key).add(i); };
  for (const i of top_) {
    for (const node of data.tasks[i].nodes) put(byNode, node, i);
    for (const path of data.tasks[i].paths) put(byPath, path, i);
  }
  const tasks = pass.numbers.map((number, k) => [...(exact ? byNode.get(number) ?? [] : new Set(pass.paths[k].flatMap((p) => [...(byPath.get(p) ?? [])])))]);
  const text = pass.numbers.map((number, k) => `%${number}: ${pass.types[k]} = ${pass.ops[k]} ${pass.attrs[k]}${pass.paths[k].length ? `\n${callPath(pass.paths[k][0])}` : ""}${tasks[k].length && exact ? `\ncomputed by ${tasks[k].map((i) => `t${i}`).join(", ")}` : ""}`);
  return { tasks, label: pass.ops.map((op, k) => `${op} ${pass.types[k]}`), text, above: pass.above, x: pass.x, y: pass.y, kind: pass.ops.map((op) => (op === "input" ? "library" : op === "loop" || op === "branch" ? "control" : "kernel")) };
}

function drawGraph(context, w, h, hits) {
  const g = state.graph;
  if (!g || !g.x.length) { context.fillStyle = color.faint; context.fillText(g ? "nothing to draw" : "too many nodes to draw", 12, 16); return; }
  const on = selected(), across = Math.max(...g.x) + 1, down = Math.max(...g.y) + 1;
  const wide = (w - 16) / across / 74, tall = (h - 12) / down / 30, legible = tall > 0.28 ? 0.56 : 0.3;
  const fit = Math.min(wide, 1.4, Math.max(tall, legible)), scale = fit * (state.scale ?? 1);
  const stretch = Math.min(4, Math.max(1, wide / fit)); // what is narrow has wide boxes, for their text
  const ox = state.scale ? state.ox ?? 0 : (w - across * 74 * fit * stretch) / 2, oy = state.scale ? state.oy ?? 0 : 6;
  const box = [(74 * stretch - 12) * scale, 18 * scale];
  const at = (k) => [ox + (g.x[k] * 74 * stretch + 6) * scale, oy + g.y[k] * 30 * scale];
  state.fit = { fit, ox, oy, middle: (k) => at(k).map((from, i) => from + box[i] / 2) };
  context.lineWidth = Math.min(1, scale + 0.25);
  for (const lit of [false, true]) {
    context.strokeStyle = lit ? color.pick : color.arrow;
    context.beginPath();
    g.above.forEach((taken, k) => {
      const [x1, y1] = at(k);
      for (const a of taken) {
        const own = on.size > 0 && (g.tasks[k].some((i) => on.has(i)) || g.tasks[a].some((i) => on.has(i)));
        if (own !== lit) continue;
        const [x0, y0] = at(a);
        if ((y1 < 0 && y0 < 0) || (y0 > h && y1 > h)) continue;
        context.moveTo(x0 + box[0] / 2, y0 + box[1]);
        context.lineTo(x1 + box[0] / 2, y1);
      }
    });
    context.stroke();
  }
  g.x.forEach((_, k) => {
    const [x, y] = at(k);
    if (x > w || y > h || x + box[0] < 0 || y + box[1] < 0) return;
    const lit = g.tasks[k].some((i) => on.has(i));
    context.globalAlpha = on.size && !lit ? 0.4 : 1;
    bar(context, x, y, box[0], Math.max(box[1], 1.5), lit ? color.pick : color[g.kind[k]], scale > 0.5 ? g.label[k] : "");
    hits.push([x, y, box[0], box[1], g.tasks[k], g.text[k]]);
  });
  context.globalAlpha = 1;
}

function reveal(i) { // the schedule and the graph are moved where they do not show the task
  const [start, end] = intervalOf(i).map((us) => us / data.end), span = state.to - state.from;
  if (end < state.from || start > state.to) {
    state.from = Math.min(1 - span, Math.max(0, (start + end - span) / 2));
    state.to = state.from + span;
  }
  const k = state.graph && state.fit ? state.graph.tasks.findIndex((tasks) => tasks.includes(i)) : -1;
  if (k < 0) return;
  const [x, y] = state.fit.middle(k), { clientWidth: w, clientHeight: h } = $("#graph canvas");
  if (x < 0 || x > w || y < 0 || y > h) Object.assign(state, { scale: state.scale ?? 1, ox: state.fit.ox + w / 2 - x, oy: state.fit.oy + h / 2 - y });
}

function graphMoves(area) {
  const start = () => { if (!state.scale) Object.assign(state, { scale: 1, ox: state.fit.ox, oy: state.fit.oy }); };
  area.node.addEventListener("wheel", (event) => {
    if (!(event.ctrlKey || event.metaKey || event.altKey)) return;
    event.preventDefault();
    start();
    const box = area.node.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const by = event.deltaY > 0 ? 0.8 : 1.25;
    Object.assign(state, { scale: state.scale * by, ox: x - (x - state.ox) * by, oy: y - (y - state.oy) * by });
    area.paint();
  }, { passive: false });
  area.node.addEventListener("mousemove", (event) => {
    if (!event.buttons) return;
    start();
    state.ox += event.movementX;
    state.oy += event.movementY;
    area.paint();
  });
  area.node.addEventListener("dblclick", () => { state.scale = undefined; area.paint(); });
  area.node.addEventListener("keydown", (event) => {
    const by = { "+": 1.3, "=": 1.3, "-": 1 / 1.3 }[event.key];
    if (by) { start(); state.scale *= by; area.paint(); }
    if (event.key === "0") { state.scale = undefined; area.paint(); }
  });
}

function passes() {
  const bar_ = $("#passes"), choices = data.passes.map((pass, k) => [pass, k]);
  bar_.replaceChildren(...[...choices, [{ name: "tasks", count: top_.length, x: [] }, -1]].map(([pass, k]) => element("button", {
    type: "button", role: "tab", "aria-selected": String(k === state.pass), class: pass.same ? "same" : "", text: `${pass.name} ${pass.same ? "=" : pass.count}`,
    title: pass.same ? "this pass changed nothing" : `${pass.count} nodes`,
    onclick: () => { state.pass = k; state.scale = undefined; passes(); refresh(); },
  })));
  let chosen = state.pass;
  while (chosen > 0 && data.passes[chosen].same) chosen -= 1;
  const pass = data.passes[chosen];
  state.graph = chosen < 0 ? taskGraph() : pass.x ? passGraph(pass) : null;
}

// source

function source() {
  const body = $("#source .body"), rows = [], most = Math.max(...[...data.lines.values()].map((l) => l.time), 1e-9);
  const total = top_.reduce((sum, i) => sum + timeOf(data.tasks[i]), 0) || 1;
  data.files.forEach((file, f) => {
    body.append(element("div", { class: "file", text: file.name }));
    let last = 0;
    for (const [number, text] of file.lines) {
      if (last && number > last + 1) body.append(element("div", { class: "gap", text: "⋯" }));
      last = number;
      const entry = data.lines.get(`${f}:${number}`);
      const mark = element("i");
      mark.style.width = entry ? `${Math.max(1, (40 * entry.time) / most)}px` : "0";
      const row = element("div", { class: entry ? "line used" : "line" }, mark, element("b", { text: entry ? String(entry.tasks.size) : "" }), element("u", { text: String(number) }), element("s", { text }));
      if (entry) {
        const words = `${entry.tasks.size} tasks, ${(100 * entry.time / total).toFixed(1)} % of the time, ${duration(entry.time)}\n${[...entry.paths].slice(0, 8).map(callPath).join("\n")}`;
        row.addEventListener("mousemove", (event) => { if (state.hovered !== entry.tasks) { state.hovered = entry.tasks; refresh(); } tip(event, words); });
        row.addEventListener("mouseleave", () => { tip(null, ""); hover(null); });
        row.addEventListener("click", () => pin(entry.tasks));
        rows.push([row, entry]);
      }
      body.append(row);
    }
  });
  if (!data.files.length) body.append(element("pre", { text: "the source is not part of this report" }));
  shows.push(() => {
    const on = selected();
    let first = null;
    for (const [row, entry] of rows) {
      const own = [...entry.own].some((i) => on.has(i));
      row.classList.toggle("on", own);
      row.classList.toggle("near", !own && [...entry.tasks].some((i) => on.has(i)));
      first ??= own ? row : null;
    }
    if (first && state.hovered === null && state.pinned.size && !body.contains(document.activeElement)) first.scrollIntoView({ block: "nearest" });
  });
}

// tabs

const rate = (t) => { const us = timeOf(t); return us ? t.bytes / us / 1e3 : 0; };
const least = (t) => Math.max(t.bytes / data.device.bandwidth, t.flops / data.device.flops);
const COLUMNS = [
  ["task", (t, i) => i], ["time", (t) => timeOf(t)], ["predicted", (t) => t.cost], ["measured", (t) => t.measured ?? -1],
  ["least bytes", (t) => t.bytes], ["flops", (t) => t.flops], ["GB/s", rate], ["of the limit", (t) => least(t) / (timeOf(t) || 1)],
];
const MOST_ROWS = 400;

function amount(n) { // 12,345 or 1.23 G
  const power = n < 1e5 ? 0 : Math.min(4, Math.floor(Math.log10(n) / 3));
  return power ? `${parseFloat((n / 1000 ** power).toPrecision(3))} ${" kMGT"[power]}` : n.toLocaleString("en");
}

function kernelGroups() { // kernels that several tasks launch: how often, and their time in all
  const groups = new Map();
  for (const i of top_) groups.set(data.tasks[i].label, [...(groups.get(data.tasks[i].label) ?? []), i]);
  const repeated = [...groups].filter(([, tasks]) => tasks.length > 1);
  if (!repeated.length) return [];
  const total = (tasks) => tasks.reduce((sum, i) => sum + (timeOf(data.tasks[i]) || 0), 0);
  const rows = repeated.sort((a, b) => total(b[1]) - total(a[1])).map(([label, tasks]) => element("tr", { onclick: () => pin(tasks) },
    element("td", { class: "first", text: label }), element("td", { text: String(tasks.length) }), element("td", { text: duration(total(tasks)) }), element("td", { text: duration(total(tasks) / tasks.length) })));
  const head = element("tr", {}, ...["kernel", "launches", "in all", "each"].map((name, i) => element("th", { class: i ? "" : "first", text: name })));
  return [element("table", { id: "groups" }, element("thead", {}, head), element("tbody", {}, ...rows))];
}

function kernelTable() {
  const [by, way] = state.sort, value = COLUMNS.find(([name]) => name === by)[1];
  const order = data.tasks.map((_, i) => i).sort((a, b) => way * (value(data.tasks[a], a) - value(data.tasks[b], b)));
  const ran = data.tasks.some((t) => t.measured != null), columns = COLUMNS.filter(([name]) => name !== "time" && (ran || name !== "measured"));
  const head = element("tr", {}, ...columns.map(([name]) => element("th", {
    class: name === "task" ? "first" : "", text: name + (name === by ? (way < 0 ? " ▾" : " ▴") : ""), tabindex: "0",
    onclick: () => { state.sort = [name, name === by ? -way : -1]; tabs(); },
  })));
  const rows = order.slice(0, MOST_ROWS).map((i) => {
    const t = data.tasks[i], share = least(t) / (timeOf(t) || 1), mark = element("span", { class: "bar" });
    mark.style.width = `${Math.min(30, 22 * share)}px`;
    const name = `t${i} ${t.label}`, inner = t.parent === undefined ? "" : `  ↳ in t${t.parent}${t.turns === null ? "" : ` × ${t.turns}`}: `;
    return element("tr", {
      "data-task": String(i),
      onmousemove: (event) => { if (state.hoveredRow !== i) { state.hoveredRow = i; hover(new Set([parentOf(i)])); } tip(event, describe(i)); },
      onmouseleave: () => { state.hoveredRow = null; tip(null, ""); hover(null); },
      onclick: () => { state.task = i; state.tab = "Task"; pin([parentOf(i)]); },
    }, element("td", { class: "first", text: inner + name, title: t.name }), element("td", { text: duration(t.cost) }), ...(ran ? [element("td", { text: duration(t.measured) })] : []),
    element("td", { text: bytes(t.bytes) }), element("td", { text: amount(t.flops), title: t.flops.toLocaleString("en") }), element("td", { text: rate(t).toFixed(1) }),
    element("td", {}, mark, `${(100 * share).toFixed(0)} %`));
  });
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  return [...kernelGroups(), table, ...(order.length > MOST_ROWS ? [element("pre", { text: `and ${order.length - MOST_ROWS} more` })] : [])];
}

const fact = (name, value) => (value === "" || value === undefined || value === null ? [] : [element("dt", { text: name }), element("dd", { text: String(value) })]);
const bufferName = (b) => `b${b}${data.buffers[b]?.name ? ` ${data.buffers[b].name}` : ""} (${data.buffers[b] ? `${data.buffers[b].kind}, ${bytes(data.buffers[b].bytes)}` : "?"})`;

function taskCard(i) {
  const t = data.tasks[i], outer = t.parent === undefined;
  const facts = element("dl", { class: "facts" },
    ...fact("computes", t.name), ...fact("kind", t.kind), ...fact("launch", t.launch),
    ...fact("predicted", duration(t.cost)), ...fact("measured", duration(t.measured)),
    ...fact("starts", t.cause && { launch: "when the host has come to it", stream: `after t${t.after}, on its stream`, event: `after t${t.after}, of another stream` }[t.cause]),
    ...fact("critical path", t.critical ? "yes" : ""), ...fact("in", outer ? "" : `t${t.parent}${t.turns === null ? "" : `, ${t.turns} turns`}`),
    ...fact("least bytes", bytes(t.bytes)), ...fact("flops", t.flops.toLocaleString("en")), ...fact("rate", `${rate(t).toFixed(1)} GB/s, ${(100 * least(t) / (timeOf(t) || 1)).toFixed(0)} % of the limit`),
    ...(outer ? [...fact("reads", t.reads.map(bufferName).join(", ")), ...fact("writes", t.writes.map(bufferName).join(", "))] : []),
    ...t.paths.slice(0, 12).flatMap((path, k) => fact(k ? "" : "from", callPath(path))),
    ...data.cuts.filter((cut) => outer && cut.to === i && cut.from !== i).flatMap((cut, k) => fact(k ? " " : "not one with", `t${cut.from ?? "?"}, by %${cut.node}: ${cut.text}`)));
  const text = t.kernel === undefined ? [] : [element("pre", { class: "code", text: data.kernels[t.kernel].text })];
  return [element("h3", { text: `t${i}  ${t.label}` }), facts, ...text];
}

function taskTab() {
  const one = state.task !== undefined && selected().has(parentOf(state.task)) ? [state.task] : [...selected()].slice(0, 4);
  return one.length ? one.flatMap(taskCard) : [element("pre", { text: "select a task: click one, or search" })];
}

function cutsTab() {
  const groups = new Map();
  for (const cut of data.cuts) { if (!groups.has(cut.rule)) groups.set(cut.rule, []); groups.get(cut.rule).push(cut); }
  const rows = [...groups].sort((a, b) => b[1].length - a[1].length).flatMap(([rule, cuts]) => [
    element("h3", { text: `${rule}: ${cuts.length}` }),
    element("table", {}, element("tbody", {}, ...cuts.slice(0, 60).map((cut) => element("tr", {
      onclick: () => pin([cut.from, cut.to].filter((i) => i !== null)),
    }, element("td", { text: `%${cut.node}` }), element("td", { text: `t${cut.from ?? "?"} → t${cut.to ?? "?"}` }), element("td", { text: cut.text }))))),
  ]);
  return rows.length ? rows : [element("pre", { text: "nothing passes between kernels through memory" })];
}

function decisionsTab() {
  const p = data.plan, rows = (p.candidates ?? []).map((c) => element("tr", {},
    element("td", { text: (c.name === p.chosen ? "★ " : "") + c.name }), element("td", { text: `${c.streams} streams` }), element("td", { text: `${c.records} records, ${c.waits} waits` }), element("td", { text: duration(c.predicted) })));
  const text = [`chosen: ${p.chosen ?? "?"}, ${p.reason ?? ""}`, `memory ${p.memory ?? ""}: arena ${bytes(data.memory.arena)}, the least possible ${bytes(data.memory.bound)}`, ...(p.trial.length ? ["", "measured:", ...p.trial] : []), ...(data.notes.length ? ["", ...data.notes] : [])].join("\n");
  return [element("table", {}, element("tbody", {}, ...rows)), element("pre", { text })];
}

// the roofline (Williams, Waterman and Patterson, 2009): flops of each byte moved against flops in a second

const plot = element("canvas", { tabindex: "0", role: "img", "aria-label": "roofline; the table of kernels lists the same numbers" });

function drawRoofline(context, w, h, hits) {
  const { bandwidth, flops: peak } = data.device, ridge = peak / bandwidth, on = selected();
  const points = top_.map((i) => [i, data.tasks[i]]).filter(([, t]) => t.bytes > 0 && t.flops > 0 && timeOf(t) > 0)
    .map(([i, t]) => ({ i, t, x: t.flops / t.bytes, y: t.flops / timeOf(t) }));
  if (!points.length) { context.fillStyle = color.faint; context.fillText("no task does arithmetic", 12, 16); return; }
  const low = (values) => 10 ** Math.floor(Math.log10(Math.min(...values))), high = (values) => 10 ** Math.ceil(Math.log10(Math.max(...values)));
  const xs = points.map((p) => p.x).concat(ridge / 10, ridge * 10), ys = points.map((p) => p.y).concat(peak, low(xs) * bandwidth);
  const [x0, x1, y0, y1] = [low(xs), high(xs), low(ys), high(ys)];
  const X = (x) => LEFT + (Math.log(x / x0) / Math.log(x1 / x0)) * (w - LEFT - 12), Y = (y) => 10 + (1 - Math.log(y / y0) / Math.log(y1 / y0)) * (h - BOTTOM - 30);
  context.textAlign = "left";
  for (let x = x0; x <= x1 * 1.001; x *= 10) { context.fillStyle = color.edge; context.fillRect(X(x), 10, 1, h - BOTTOM - 30); context.fillStyle = color.faint; if (x < x1 * 0.9) context.fillText(parseFloat(x.toPrecision(1)), X(x) + 2, h - BOTTOM - 12); }
  for (let y = y0; y <= y1 * 1.001; y *= 10) { context.fillStyle = color.edge; context.fillRect(LEFT, Y(y), w - LEFT - 12, 1); context.fillStyle = color.faint; context.fillText(`${parseFloat((y / 1e3).toPrecision(1))}`, 8, Y(y)); }
  context.fillText("flops for each byte →", LEFT, h - 8);
  context.fillText("Gflop/s ↑", 8, h - 8);
  context.strokeStyle = color.hot;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(X(x0), Y(x0 * bandwidth));
  context.lineTo(X(ridge), Y(peak));
  context.lineTo(X(x1), Y(peak));
  context.stroke();
  const most = Math.max(...points.map((p) => timeOf(p.t)));
  for (const { i, t, x, y } of points.sort((p, q) => timeOf(q.t) - timeOf(p.t))) {
    const size = 3 + 9 * Math.sqrt(timeOf(t) / most), lit = on.has(i);
    context.globalAlpha = on.size && !lit ? 0.25 : 0.85;
    context.fillStyle = lit ? color.pick : color[t.kind];
    context.beginPath();
    context.arc(X(x), Y(y), size, 0, 2 * Math.PI);
    context.fill();
    hits.push([X(x) - size, Y(y) - size, 2 * size, 2 * size, [i], `${describe(i)}\n${parseFloat(x.toPrecision(3))} flops a byte, ${parseFloat((y / 1e3).toPrecision(3))} Gflop/s: ${(100 * least(t) / timeOf(t)).toFixed(0)} % of what ${x < ridge ? "memory" : "arithmetic"} allows`]);
  }
  context.globalAlpha = 1;
}

const TABS = {
  Kernels: kernelTable, Roofline: () => [plot], Task: taskTab, Cuts: cutsTab, Decisions: decisionsTab,
  Versions: () => [element("pre", { text: data.log.join("\n") })],
  Devices: () => [element("pre", { text: data.devices.join("\n") })],
  Text: () => [element("pre", { class: "code", text: [...data.groups.map((g, i) => `g${i}: ${g}`), "", ...data.plan.steps.map(([what, s, n]) => `${what} ${what === "launch" ? `t${n}` : `e${n}`} on s${s}`)].join("\n") })],
};

let drawn = "";
function tabs() {
  tip(null, ""); // what it belongs to is about to go, and tells no more when the pointer leaves
  $("#tabs").replaceChildren(...Object.keys(TABS).filter((name) => name !== "Devices" || data.devices.length).map((name) => element("button", {
    type: "button", role: "tab", "aria-selected": String(name === state.tab), text: name, onclick: () => { state.tab = name; tabs(); },
  })));
  $("#details .body").replaceChildren(...TABS[state.tab]());
  $("#details h2 .svg").hidden = state.tab !== "Roofline";
  drawn = state.tab;
}

function everyTab() { // for paper
  const names = Object.keys(TABS).filter((name) => name !== "Roofline" && (name !== "Devices" || data.devices.length));
  $("#details .body").replaceChildren(...names.flatMap((name) => [element("h3", { text: name }), ...TABS[name]()]));
}

// the head

function listed(given) { // x float32[5], w[0…7] float32[3]: neighbours alike are one
  const runs = [];
  for (const { name, type } of given) {
    const [, base, index] = /^(.*)\[(\d+)\]$/.exec(name) ?? [null, name, null], last = runs.at(-1);
    if (last && index !== null && last.base === base && last.type === type && Number(index) === last.to + 1) last.to += 1;
    else runs.push({ base, type, from: Number(index), to: Number(index), index });
  }
  return runs.map((r) => `${r.base}${r.index === null ? "" : r.from === r.to ? `[${r.from}]` : `[${r.from}…${r.to}]`} ${r.type}`).join(", ");
}

function head() {
  $("h1").textContent = data.function.signature;
  const p = data.plan, facts = [
    ["on", data.devices.length ? `${data.device.name}, as one device would run it; its parts: see Devices` : data.device.name], ["arguments", listed(data.arguments)], ["nodes → tasks", `${data.nodes} → ${top_.length}`],
    ["predicted", duration(data.predicted)], ["measured", duration(data.measured) || "not measured"], ["longest chain", duration(p.critical)],
    ["streams", p.streams], ["records / waits", `${p.records} / ${p.waits}`], ["arena", data.memory.arena ? `${bytes(data.memory.arena)} (least ${bytes(data.memory.bound)})` : "none"],
  ];
  $("#facts").replaceChildren(...facts.map(([name, value]) => element("div", {}, element("dt", { text: name }), element("dd", { text: String(value) }))));
  $("#look").replaceChildren(...data.remarks.map((remark) => element("button", { type: "button", text: remark.text.replace(/(\d) us\b/g, "$1 µs"), onclick: () => pin(remark.tasks) })));
  const moves = "; drag to pan, ctrl + wheel to zoom", time = data.run ? "measured" : "predicted";
  $("#schedule small").textContent = `${data.run ? "solid: measured, pale: predicted" : "as predicted"}; underlined: the critical path; lines: events${moves}`;
  $("#memory small").textContent = `arena address by ${time} time; line: the least that any arena needs; outlined: what forces it`;
  $("main").style.setProperty("--schedule", `${Math.min(5, 1.4 + 0.45 * p.streams)}fr`);
  $("footer").textContent = Object.entries(data.made).map(([k, v]) => `${k} ${v}`).join(" · ");
}

function search() {
  const words = $("#search").value.toLowerCase().trim();
  if (!words) { $("#found").textContent = ""; pin([]); return; }
  const hits = new Set();
  data.tasks.forEach((t, i) => {
    const text = [`t${i}`, t.name, t.label, ...t.paths.map(callPath), ...(t.parent === undefined ? [...t.reads, ...t.writes].map((b) => data.buffers[b]?.name ?? "") : [])].join("\n").toLowerCase();
    if (text.includes(words)) hits.add(parentOf(i));
  });
  $("#found").textContent = `${hits.size} found`;
  state.hits = [...hits];
  state.hit = -1;
  pin(hits);
}

function nextHit(by) { // one of the hits after the other, with Enter
  const count = state.hits?.length;
  if (!count || !$("#search").value) return;
  state.hit = state.hit < 0 ? (by > 0 ? 0 : count - 1) : (state.hit + by + count) % count;
  $("#found").textContent = `${state.hit + 1} of ${count}`;
  state.task = undefined;
  state.tab = "Task";
  reveal(state.hits[state.hit]);
  pin([state.hits[state.hit]]);
}

function keys(event) {
  if (event.key === "/" && event.target !== $("#search")) { event.preventDefault(); $("#search").focus(); return; }
  if (event.key === "Escape") { $("#search").value = ""; $("#found").textContent = ""; document.activeElement.blur(); pin([]); return; }
  if (event.key === "Enter" && event.target === $("#search")) { event.preventDefault(); nextHit(event.shiftKey ? -1 : 1); return; }
  if (event.target.tagName === "INPUT" || !event.key.startsWith("Arrow") || !top_.length) return;
  const from = [...state.pinned][0];
  const before = (i) => top_.filter((k) => succ[k].has(i));
  const next = from === undefined ? top_[0] : {
    ArrowRight: [...succ[from]][0], ArrowLeft: before(from)[0], ArrowDown: top_[top_.indexOf(from) + 1], ArrowUp: top_[top_.indexOf(from) - 1],
  }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  state.task = undefined;
  state.tab = "Task";
  reveal(next);
  pin([next]);
}

// panels: what lies between two of them can be dragged, or moved by arrow keys

function splitter(tracks, at, area) { // between two of main's columns or rows; area: where it stands in the grid
  const main = $("main"), upright = tracks === "gridTemplateColumns";
  const move = (by) => {
    const sizes = getComputedStyle(main)[tracks].split(" ").map(parseFloat), least = 60;
    const moved = Math.max(least - sizes[at], Math.min(sizes[at + 1] - least, by));
    sizes[at] += moved;
    sizes[at + 1] -= moved;
    main.style[tracks] = sizes.map((size) => `${size}fr`).join(" ");
    note();
  };
  const note = () => {
    const sizes = getComputedStyle(main)[tracks].split(" ").map(parseFloat);
    node.setAttribute("aria-valuenow", String(Math.round((100 * sizes[at]) / (sizes[at] + sizes[at + 1])) || 0));
  };
  const node = element("div", {
    class: `splitter ${upright ? "upright" : "level"}`, role: "separator", tabindex: "0", "aria-label": "size of the panels",
    "aria-orientation": upright ? "vertical" : "horizontal", title: "drag to resize; double click: as it was",
    onpointerdown: (event) => { event.preventDefault(); node.setPointerCapture(event.pointerId); },
    onpointermove: (event) => { if (node.hasPointerCapture(event.pointerId)) { const box = node.getBoundingClientRect(); move(upright ? event.clientX - box.left - box.width / 2 : event.clientY - box.top - box.height / 2); } },
    ondblclick: () => { main.style[tracks] = ""; note(); },
    onkeydown: (event) => {
      const by = { ArrowLeft: -20, ArrowUp: -20, ArrowRight: 20, ArrowDown: 20 }[event.key];
      if (by) { event.preventDefault(); event.stopPropagation(); move(by); }
    },
  });
  node.style.gridArea = area;
  main.append(node);
  note();
}

// all that a profile recorded: a row for each thread and stream, what lies within a span below it

function timeline(found) {
  const rows = [], ends = found.tracks.map(() => []);
  LEFT = 150; // for the names of threads and streams
  data = { end: Math.max(1e-9, ...found.spans.map((span) => span[4])) };
  const placed = found.spans.map(([kind, name, track, start, end, line]) => {
    let depth = 0;
    while ((ends[track][depth] ?? -Infinity) > start + 1e-3) depth += 1;
    ends[track][depth] = end;
    return { kind, name, track, start, end, line, depth };
  });
  let count = 0;
  const first = ends.map((within) => { const at = count; count += Math.max(1, within.length); return at; });
  const shade = (span) => color[{ kernel: "kernel", library: "library" }[span.kind] ?? (span.kind === "wait" ? "arrow" : span.kind === "in NumPy" ? "hot" : "control")];
  const drawing = element("canvas", { tabindex: "0", role: "img", "aria-label": "what ran when; the table lists the same spans" });
  const body = element("div", { class: "body" }, drawing);
  body.style.height = `${count * 18 + BOTTOM + 8}px`;
  const groups = new Map();
  for (const span of placed) {
    const key = [found.tracks[span.track].split(" · ")[0], span.kind, span.name, span.line].join("\n");
    groups.set(key, [...(groups.get(key) ?? []), span.end - span.start]);
  }
  const sums = [...groups].map(([key, times]) => [key.split("\n"), times.sort((a, b) => a - b), times.reduce((sum, t) => sum + t, 0)]);
  for (const [words, times, sum] of sums.sort((a, b) => b[2] - a[2]).slice(0, MOST_ROWS)) {
    rows.push(element("tr", {}, ...words.map((text) => element("td", { text })), element("td", { text: String(times.length) }), ...[sum, times[Math.floor(times.length / 2)], times[0], times.at(-1)].map((t) => element("td", { text: duration(t) }))));
  }
  const head = ["where", "what", "name", "line", "times", "in all", "median", "least", "most"];
  const table = (id, title, more, names, lines) => element("section", { class: "panel", id }, element("h2", {}, title, element("small", { text: more })), element("div", { class: "body", tabindex: "0" },
    element("table", {}, element("thead", {}, element("tr", {}, ...names.map((text) => element("th", { text })))), element("tbody", {}, ...lines))));
  const took = found.versions.reduce((sum, [, , time]) => sum + time, 0);
  const versions = found.versions.map(([name, text, time, line, difference]) => element("tr", {}, ...[name, text, duration(time) || "", difference, line].map((text) => element("td", { text }))));
  $("h1").textContent = "The whole profile";
  $("#tools").remove();
  $("#look").remove();
  $("main").replaceChildren(
    element("section", { class: "panel", id: "timeline" }, element("h2", {}, "Timeline ", element("small", { text: `${found.omitted ? `the first ${placed.length} spans of ${placed.length + found.omitted}; ` : ""}drag to pan, ctrl + wheel to zoom` })), body),
    table("versions", "Versions ", `each trace and each compile, ${duration(took) || "0"} in all`, ["function", "what", "took", "why", "called at"], versions),
    table("spans", "By name", "", head, rows));
  document.body.classList.add("timeline");
  const area = canvas(drawing, (context, w, h, hits) => {
    axis(context, w, h);
    context.textAlign = "left";
    found.tracks.forEach((name, track) => { context.fillStyle = color.faint; context.fillText(name, 8, 4 + first[track] * 18 + 9); });
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, w - LEFT, h);
    context.clip();
    for (const span of placed) {
      const x = timeX(span.start, w), wide = timeX(span.end, w) - x, y = 4 + (first[span.track] + span.depth) * 18;
      if (x > w || x + wide < LEFT) continue;
      bar(context, x, y, wide, 16, shade(span), `${span.kind} ${span.name}`, LEFT);
      hits.push([x, y, wide, 16, [], `${span.kind} ${span.name}\n${duration(span.end - span.start)} from ${duration(span.start) || "0"}${span.line ? `\n${span.line}` : ""}`]);
    }
    context.restore();
  }, "timeline");
  zoomable(area);
  refresh();
  window.kernelgraph = { data: found, hits: () => area.hits, svg: () => area.svg() }; // for tests and scripts
}

// a comparison of two reports: what differs by line and by task, and both schedules on one time scale

const share = { tasks: [new Set(), new Set()] }; // what is pointed at, of either report

function compare(two, found) {
  const paints = [], end = Math.max(...two.map((one) => Math.max(...one.tasks.map((t) => t.end ?? 0), 1e-9)));
  const light = (row) => { share.tasks = row ? row.tasks.map((tasks) => new Set(tasks)) : [new Set(), new Set()]; for (const paint of paints) paint(); };
  const cell = (value, other) => element("td", { class: value === other ? "" : "moved", text: value === null ? "-" : String(value) });
  $("h1").textContent = found.names.join("  |  ");
  $("#tools").remove();
  $("#look").remove();
  const table = (id, title, head, rows) => {
    const all = element("input", { type: "checkbox", onchange: () => body.classList.toggle("all") }), body = element("tbody", {}, ...rows);
    return element("section", { id, class: "panel" }, element("h2", {}, `${title} `, element("label", {}, all, " what is equal, too")),
      element("div", { class: "body" }, element("table", {}, element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { text })))), body)));
  };
  const facts = found.facts.map(([name, a, b]) => element("tr", { class: a === b ? "equal" : "" }, element("td", { text: name }), cell(a, a), cell(b, a)));
  const cuts = found.cuts.map(([rule, a, b]) => element("tr", { class: a === b ? "equal" : "" }, element("td", { text: `cuts: ${rule}` }), cell(a, a), cell(b, a)));
  const rows = (list) => list.map((row) => {
    const [a, b] = row.times, factor = a && b ? `${parseFloat((b / a).toPrecision(3))} ×` : a === null ? "new" : "gone";
    const made = element("tr", { class: a === b ? "equal" : "", onmouseenter: () => light(row), onmouseleave: () => light(null) },
      element("td", { text: `${row.where}  ${row.text}`, title: row.text }), element("td", { text: duration(a) || "-" }), element("td", { text: duration(b) || "-" }),
      element("td", { text: `${row.tasks[0].length} → ${row.tasks[1].length}` }), element("td", { text: factor }));
    made.tasks_ = row.tasks;
    return made;
  });
  const lines = rows(found.lines), head = ["", "first", "second", "tasks", "second / first"];
  $("main").replaceChildren(
    table("differences", "What differs", ["", ...found.names], [...facts, ...cuts]),
    table("byline", `By line (times as ${found.basis})`, head, lines),
    ...two.map((one, k) => element("section", { class: "panel wide", id: `schedule${k}` }, element("h2", {}, found.names[k], element("small", { text: "  as predicted, both on one scale" })),
      element("div", { class: "body" }, element("canvas", { role: "img", "aria-label": `schedule of ${found.names[k]}; the tables list the same times` })))),
    table("bytask", "By task", head, rows(found.tasks)));
  document.body.classList.add("comparison");
  two.forEach((one, k) => {
    const outer = one.tasks.map((t, i) => [i, t]).filter(([, t]) => t.parent === undefined);
    const area = canvas($(`#schedule${k} canvas`), (context, w, h, hits) => {
      data = one;
      one.end = end;
      const row = rowOf(h, Math.max(1, one.plan.streams)), on = share.tasks[k], any = on.size || share.tasks[1 - k].size;
      axis(context, w, h);
      for (const [i, t] of outer) {
        const x = timeX(t.start, w), y = 4 + t.stream * row + row * 0.05, lit = on.has(i), text = describe(i);
        context.globalAlpha = any && !lit ? 0.25 : 1;
        bar(context, x, y, timeX(t.end, w) - x, row * 0.8, lit ? color.pick : color[t.kind], t.label, LEFT);
        hits.push([x, y, timeX(t.end, w) - x, row * 0.8, [i], text]);
      }
      context.globalAlpha = 1;
    }, `schedule ${k + 1}`);
    paints.push(area.paint);
    area.node.addEventListener("mousemove", (event) => {
      const hit = area.at(event), at = hit && found.lines.find((line) => line.tasks[k].includes(hit[4][0]));
      light(at ?? null);
      for (const line of lines) line.classList.toggle("on", at !== undefined && line.tasks_ === at?.tasks);
    });
  });
  paints.push(() => { for (const line of lines) line.classList.toggle("on", line.tasks_.some((tasks, k) => tasks.some((i) => share.tasks[k].has(i)) && share.tasks[k].size === tasks.length)); });
  window.kernelgraph = { data: found, lit: () => share.tasks.map((tasks) => [...tasks]) }; // for tests and scripts
}

async function main() {
  const every = await load(), which = Number(/[#&]r=(\d+)/.exec(location.hash)?.[1] ?? every.findIndex((one) => one.comparison));
  state.report = every[which] ? which : 0;
  data = every[state.report];
  $("#which").hidden = every.length < 2;
  $("#which").append(...every.map((one, i) => element("option", { value: String(i), text: one.comparison ? "the two compared" : one.timeline ? "the whole profile" : `${i + 1} of ${every.filter((each) => each.tasks && !each.comparison).length}: ${one.function.name}(${one.arguments.map((a) => a.type).join(", ").slice(0, 60)})` })));
  $("#which").value = String(state.report);
  $("#which").addEventListener("change", (event) => { location.hash = `#r=${event.target.value}`; location.reload(); });
  palette();
  if (data.comparison) { compare(every.slice(0, 2), data); return; }
  if (data.timeline) { timeline(data.timeline); return; }
  derive();
  state.pass = data.passes.at(-1)?.x && data.passes.at(-1).x.length < 400 && top_.length < 3 ? data.passes.length - 1 : -1;
  head();
  source();
  passes();
  const drawings = { schedule: drawSchedule, memory: drawMemory, graph: drawGraph };
  const areas = Object.fromEntries(Object.entries(drawings).map(([id, draw]) => [id, canvas($(`#${id} canvas`), draw, id)]));
  areas.roofline = canvas(plot, drawRoofline, "roofline", $("#details h2"));
  splitter("gridTemplateColumns", 0, "1 / 1 / 4 / 2");
  splitter("gridTemplateColumns", 1, "3 / 2 / 4 / 3");
  splitter("gridTemplateRows", 0, "1 / 2 / 2 / 4");
  splitter("gridTemplateRows", 1, "2 / 2 / 3 / 4");
  zoomable(areas.schedule);
  zoomable(areas.memory);
  graphMoves(areas.graph);
  for (const [id, words] of [["schedule", "tasks on streams by time"], ["memory", "arena by address and time"], ["graph", "graph"]]) areas[id].node.setAttribute("aria-label", `${words}; the table of kernels lists the same tasks`);
  shows.push(() => {
    if (state.tab !== drawn || (state.tab === "Task" && state.hovered === null)) tabs();
    const on = selected();
    for (const row of document.querySelectorAll("tr[data-task]")) row.classList.toggle("on", on.has(parentOf(Number(row.dataset.task))) && on.size > 0);
  });
  tabs();
  $("#search").addEventListener("input", search);
  $("#clear").addEventListener("click", () => { $("#search").value = ""; $("#found").textContent = ""; pin([]); });
  addEventListener("keydown", keys);
  addEventListener("beforeprint", everyTab);
  addEventListener("afterprint", tabs);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { palette(); refresh(); });
  const asked = /[#&]t=([\d,]+)$/.exec(location.hash);
  if (asked) state.pinned = new Set(asked[1].split(",").map(Number).filter((i) => i < data.tasks.length));
  refresh();
  window.kernelgraph = { // for tests and scripts
    data, selected: () => [...selected()], svg: (name) => areas[name].svg(), graph: () => areas.graph.hits,
    show: (us, times) => { const span = 1 / times; state.from = Math.min(1 - span, Math.max(0, us / data.end - span / 2)); state.to = state.from + span; refresh(); },
    roofline: () => { const box = plot.getBoundingClientRect(); return areas.roofline.hits.map(([x, y, w, h, tasks]) => [box.left + x + w / 2, box.top + y + h / 2, tasks]); },
    where: (task) => { const box = areas.schedule.node.getBoundingClientRect(), [x, y, w, h] = bars.get(task); return [box.left + x + w / 2, box.top + y + h / 2]; },
  };
}

main().catch((error) => { document.body.prepend(element("pre", { text: `This page could not be drawn: ${error}. It needs a browser of 2023 or later.` })); throw error; });
