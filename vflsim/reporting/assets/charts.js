"use strict";
/* Curves that can be zoomed and read off, and the parties' timeline. Each function builds one chart in an element. */
const charts = (() => {
  const live = new Set();
  /* A dark colour, such as the palette's grey, is mixed with white on a dark page. */
  const seen = (hex) => {
    const parts = [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));
    if (color("--dark") !== "1" || 0.3 * parts[0] + 0.59 * parts[1] + 0.11 * parts[2] > 80) return hex;
    return `rgb(${parts.map((part) => Math.round(part + 0.5 * (255 - part))).join(",")})`;
  };
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const make = (tag, into, attributes = {}, text = "") => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.textContent = text;
    if (into) into.append(made);
    return made;
  };
  const SCALES = {
    s: [[3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]],
    B: [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]],
  };
  const three = (value) => {
    if (value === 0) return "0";
    const size = Math.abs(value);
    return size >= 1e6 || size < 1e-4 ? value.toExponential(2) : String(+value.toPrecision(3)).replace(/\B(?=(\d{3})+$)/g, size >= 1e4 ? "," : "");
  };
  const amount = (value, unit) => {
    const scales = unit === "s" ? SCALES.s.slice(2) : SCALES[unit];
    if (!scales) return three(value);
    const [scale, shown] = scales.find(([least]) => Math.abs(value) >= least) || (value === 0 ? scales.at(unit === "s" ? 0 : -1) : scales.at(-1));
    return `${three(value / scale)} ${shown}`;
  };
  /* Ticks of one axis share a unit, and as many digits as tell them apart. */
  const ticks = (values, unit) => {
    const greatest = Math.max(...values.filter((value) => value !== null).map(Math.abs), 0);
    return values.map((value) => (value === null ? "" : unit === "s" && greatest >= 1 ? String(+value.toPrecision(8)) + " s" : amount(value, unit)));
  };
  const swatch = (look) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [key, value] of Object.entries({ width: 30, height: 12, "aria-hidden": "true" })) made.setAttribute(key, value);
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.setAttribute("d", "M0 6H30");
    line.setAttribute("stroke", seen(look.color));
    line.setAttribute("stroke-width", 2);
    if (look.dash.length) line.setAttribute("stroke-dasharray", look.dash.join(" "));
    const mark = document.createElementNS("http://www.w3.org/2000/svg", "path");
    mark.setAttribute("d", outline(look.marker, 15, 6, 4));
    mark.setAttribute("fill", look.hollow ? color("--ground") : seen(look.color));
    if (look.hollow) mark.setAttribute("stroke", seen(look.color));
    made.append(line, mark);
    return made;
  };
  /* The outline of a marker as path data: the markers of the figures. */
  const around = (corners, outer, inner) => Array.from({ length: 2 * corners }, (_, k) => {
    const angle = (k * Math.PI) / corners, far = k % 2 ? (inner === outer ? outer * Math.cos(Math.PI / corners) : inner) : outer;
    return [far * Math.sin(angle), -far * Math.cos(angle)];
  });
  const outline = (marker, x, y, r) => {
    const through = (points) => "M" + points.map(([a, b]) => `${x + a * r} ${y + b * r}`).join("L") + "Z";
    switch (marker) {
      case "s": return through([[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]);
      case "D": return through([[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]]);
      case "^": return through([[0, -1.1], [1.1, 0.9], [-1.1, 0.9]]);
      case "v": return through([[0, 1.1], [1.1, -0.9], [-1.1, -0.9]]);
      case "P": return through([[-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4], [1.1, 0.4], [0.4, 0.4], [0.4, 1.1], [-0.4, 1.1], [-0.4, 0.4], [-1.1, 0.4], [-1.1, -0.4], [-0.4, -0.4]]);
      case "X": return through([[-1.1, -0.6], [-0.6, -1.1], [0, -0.5], [0.6, -1.1], [1.1, -0.6], [0.5, 0], [1.1, 0.6], [0.6, 1.1], [0, 0.5], [-0.6, 1.1], [-1.1, 0.6], [-0.5, 0]]);
      case "<": return through([[-1.1, 0], [0.9, -1.1], [0.9, 1.1]]);
      case ">": return through([[1.1, 0], [-0.9, 1.1], [-0.9, -1.1]]);
      case "d": return through([[0, -1.4], [0.8, 0], [0, 1.4], [-0.8, 0]]);
      case "p": return through(around(5, 1.2, 1.2));
      case "h": return through(around(6, 1.2, 1.2));
      case "*": return through(around(5, 1.5, 0.6));
      default: return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
    }
  };
  const axis = (label, unit, more = {}) => ({
    stroke: () => color("--ink"),
    grid: { stroke: () => color("--grid"), width: 1 },
    ticks: { stroke: () => color("--grid"), width: 1 },
    font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif",
    label, labelSize: 20,
    values: (u, values) => ticks(values, unit),
    ...more,
  });
  const fit = (host, height) => ({ width: Math.max(260, host.clientWidth), height });

  function curves(element, data, looks) {
    const bar = make("div", element, { class: "bar" });
    const host = make("div", element);
    const keys = make("div", element, { class: "keys" });
    const group = `x-${element.dataset.from}`;
    let chosen = Object.keys(data.axes)[0], logarithmic = null, plot = null;
    const hidden = new Set();
    for (const name of Object.keys(data.axes)) {
      const label = make("label", bar);
      const input = make("input", label, { type: "radio", name: group, value: name });
      input.checked = name === chosen;
      label.append(name);
      input.addEventListener("change", () => { chosen = name; logarithmic = null; build(); });
    }
    const label = make("label", bar);
    const switched = make("input", label, { type: "checkbox" });
    label.append("logarithmic");
    switched.addEventListener("change", () => { logarithmic = switched.checked; build(); });
    make("span", bar, { class: "hint" }, "drag to zoom, double-click to see all, click a name to hide it");

    function build() {
      const own = data.axes[chosen], names = Object.keys(own.series);
      const ends = names.map((name) => own.x[own.series[name].mean.findLastIndex((value) => value !== null)]).filter((end) => end > 0);
      if (logarithmic === null) logarithmic = Math.max(...ends) > 5 * Math.min(...ends);
      switched.checked = logarithmic;
      const first = logarithmic ? own.x.findIndex((value) => value > 0) : 0;
      const x = own.x.slice(first), all = names.map((name) => own.series[name].mean.slice(first));
      const known = [...data.targets, ...Object.values(own.levels), ...all.flat().filter((value) => value !== null)];
      const low = Math.min(...known), high = Math.max(...known), margin = 0.05 * (high - low) || 0.05;
      if (plot) { plot.destroy(); live.delete(plot); }
      const outputs = {};
      const area = (u, name) => {
        const { low: under, high: over } = own.series[name];
        if (!under) return;
        const path = new Path2D();
        let open = false, from = [];
        const at = (value, scale) => u.valToPos(value, scale, true);
        x.forEach((value, i) => {
          if (under[i + first] === null) return;
          const right = i + 1 < x.length ? at(x[i + 1], "x") : at(value, "x");
          from.push([at(value, "x"), right, at(over[i + first], "y"), at(under[i + first], "y")]);
        });
        for (const [left, right, top] of from) { open ? path.lineTo(left, top) : path.moveTo(left, top); path.lineTo(right, top); open = true; }
        for (const [left, right, , bottom] of from.reverse()) { path.lineTo(right, bottom); path.lineTo(left, bottom); }
        path.closePath();
        u.ctx.globalAlpha = 0.16; u.ctx.fillStyle = seen(looks[name].color); u.ctx.fill(path); u.ctx.globalAlpha = 1;
      };
      const marks = (u, name, values) => {
        const step = u.bbox.width / 7, offset = names.indexOf(name) / names.length;
        u.ctx.fillStyle = looks[name].hollow ? color("--ground") : seen(looks[name].color);
        u.ctx.strokeStyle = seen(looks[name].color); u.ctx.lineWidth = 1.3 * devicePixelRatio;
        for (let k = 0; k < 7; k++) {
          const left = (k + offset) * step;
          const value = u.posToVal(u.bbox.left + left, "x", true);
          let place = -1;
          for (let low = 0, high = x.length - 1; low <= high;) { const mid = (low + high) >> 1; if (x[mid] <= value) { place = mid; low = mid + 1; } else high = mid - 1; }
          if (place < 0 || values[place] === null) continue;
          const mark = new Path2D(outline(looks[name].marker, u.bbox.left + left, u.valToPos(values[place], "y", true), 3.6 * devicePixelRatio));
          u.ctx.fill(mark);
          if (looks[name].hollow) u.ctx.stroke(mark);
        }
      };
      let written = []; /* where labels of levels above their lines are, so that close ones stand side by side */
      const level = (u, value, stroke, dash, text, above) => {
        const y = u.valToPos(value, "y", true);
        if (y < u.bbox.top || y > u.bbox.top + u.bbox.height) return;
        u.ctx.strokeStyle = stroke; u.ctx.lineWidth = 1.3 * devicePixelRatio; u.ctx.setLineDash(dash.map((d) => d * devicePixelRatio));
        u.ctx.beginPath(); u.ctx.moveTo(u.bbox.left, y); u.ctx.lineTo(u.bbox.left + u.bbox.width, y); u.ctx.stroke(); u.ctx.setLineDash([]);
        u.ctx.fillStyle = color("--soft"); u.ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`; u.ctx.textAlign = "left"; u.ctx.textBaseline = above ? "bottom" : "top";
        const beside = written.filter((other) => above && Math.abs(other.y - y) < 14 * devicePixelRatio).map((other) => other.right);
        const width = u.ctx.measureText(text).width + 8 * devicePixelRatio;
        let left = Math.max(u.bbox.left, ...beside) + 4 * devicePixelRatio, lower = above ? -2 : 3;
        if (left + width > u.bbox.left + u.bbox.width) { left = u.bbox.left + 4 * devicePixelRatio; lower = 26 + 14 * (beside.length - 1); u.ctx.textBaseline = "top"; }
        else if (above) written.push({ y, right: left + width });
        u.ctx.fillText(text, left, y + lower * devicePixelRatio);
      };
      plot = new uPlot({
        ...fit(host, host.clientWidth < 520 ? 300 : 400),
        legend: { show: false },
        cursor: { points: { size: 7 }, drag: { x: true, y: false } },
        scales: { x: { time: false, distr: logarithmic ? 3 : 1, range: (u, min, max) => [min, max] }, y: { range: [low - margin, high + margin] } },
        axes: [axis(own.label, own.unit), axis(data.metric, "", { size: 58 })],
        series: [{}, ...names.map((name) => ({
          label: name, stroke: () => seen(looks[name].color), width: 2, dash: looks[name].dash, spanGaps: true,
          points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }), show: !hidden.has(name),
        }))],
        hooks: {
          drawAxes: [(u) => {
            written = [];
            for (const value of data.targets) level(u, value, color("--soft"), [2, 3], `target ${three(value)}`, false);
            for (const [name, value] of Object.entries(own.levels)) level(u, value, seen(looks[name].color), [7, 3], `${name} (reference)`, true);
            u.ctx.save(); u.ctx.beginPath(); u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height); u.ctx.clip();
            for (const name of names) if (!hidden.has(name)) area(u, name);
            u.ctx.restore();
          }],
          draw: [(u) => {
            u.ctx.save(); u.ctx.beginPath(); u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height); u.ctx.clip();
            names.forEach((name, i) => { if (!hidden.has(name)) marks(u, name, all[i]); });
            u.ctx.restore();
          }],
          setCursor: [(u) => {
            const i = u.cursor.idx;
            place.textContent = i === null || i === undefined ? "" : `at ${amount(x[i], own.unit)}:`;
            names.forEach((name, k) => { outputs[name].textContent = i === null || i === undefined || all[k][i] === null ? "" : three(all[k][i]); });
          }],
        },
      }, [x, ...all], host);
      live.add(plot);
      plot.host = host;
      keys.replaceChildren();
      const place = make("output", null, {});
      names.forEach((name, k) => {
        const button = make("button", keys, { type: "button", "aria-pressed": !hidden.has(name) });
        button.append(swatch(looks[name]), name);
        outputs[name] = make("output", button);
        button.addEventListener("click", () => {
          hidden.has(name) ? hidden.delete(name) : hidden.add(name);
          button.setAttribute("aria-pressed", !hidden.has(name));
          plot.setSeries(k + 1, { show: !hidden.has(name) });
        });
      });
      keys.prepend(place);
    }
    build();
  }

  function timeline(element, data) {
    const bar = make("div", element, { class: "bar" });
    const chosen = make("span", bar);
    make("span", bar, { class: "hint" }, "drag to zoom all protocols, double-click to go back; point at an activity to read it");
    const plots = [], kinds = Object.values(data.kinds);
    const used = new Set(data.panels.flatMap((panel) => panel.kind));
    const keys = make("div", element, { class: "keys" });
    kinds.forEach((kind, code) => {
      if (!used.has(code)) return;
      const key = make("span", keys);
      make("i", key).style.background = kind.color;
      key.append(kind.label);
    });
    make("span", keys, {}, "pale: abandoned, or cut off by the end; ✕ lost; dashed: server step");
    const window = Math.max(...data.panels.map((panel) => panel.window));
    const whole = Math.max(...data.panels.map((panel) => panel.until));
    let busy = false;
    const zoom = (min, max) => {
      if (busy) return;
      busy = true;
      for (const plot of plots) plot.setScale("x", { min, max });
      busy = false;
    };
    for (const [text, span] of [["two rounds of the slowest", window], ["everything", whole]]) {
      make("button", chosen, { type: "button" }, text).addEventListener("click", () => zoom(0, span));
      chosen.append(" ");
    }
    for (const panel of data.panels) {
      const box = make("div", element, { class: "panel" });
      make("h4", box, {}, `${panel.protocol}, seed ${panel.seed}`);
      const host = make("div", box);
      const tip = make("div", box, { class: "tip", hidden: "" });
      const rows = panel.parties.length, row = Math.max(7, Math.min(17, 330 / rows));
      const count = panel.start.length;
      const ends = panel.start.map((start, i) => start + panel.length[i]);
      const longest = Math.max(0, ...panel.length);
      const begin = (value) => { let low = 0, high = count; while (low < high) { const mid = (low + high) >> 1; if (panel.start[mid] < value) low = mid + 1; else high = mid; } return low; };
      const draw = (u) => {
        const { ctx } = u, { min, max } = u.scales.x, px = devicePixelRatio;
        const at = (value) => u.valToPos(value, "x", true), height = u.bbox.height / rows;
        ctx.save(); ctx.beginPath(); ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height); ctx.clip();
        if (max > panel.until) {
          const left = Math.max(u.bbox.left, at(panel.until));
          ctx.fillStyle = color("--card"); ctx.fillRect(left, u.bbox.top, u.bbox.width, u.bbox.height);
          ctx.fillStyle = color("--soft"); ctx.font = `${11 * px}px system-ui, sans-serif`; ctx.textBaseline = "top"; ctx.textAlign = "left";
          ctx.fillText(panel.until < panel.end ? "  not kept in this file" : "  the run has ended", left, u.bbox.top + 3 * px);
        }
        ctx.strokeStyle = color("--soft"); ctx.lineWidth = 0.7 * px; ctx.setLineDash([3 * px, 3 * px]);
        const steps = panel.steps.filter((step) => step >= min && step <= max);
        if (steps.length <= 60) for (const step of steps) { ctx.beginPath(); ctx.moveTo(at(step), u.bbox.top); ctx.lineTo(at(step), u.bbox.top + u.bbox.height); ctx.stroke(); }
        ctx.setLineDash([]);
        for (let i = begin(min - longest); i < count && panel.start[i] < max; i++) {
          if (ends[i] < min) continue;
          const kind = kinds[panel.kind[i]], [bottom, top] = kind.rows;
          const y = u.bbox.top + (panel.party[i] + 1 - top) * height, left = at(panel.start[i]);
          const outcome = data.outcomes[panel.outcome[i]];
          ctx.globalAlpha = outcome === "done" ? 1 : 0.45;
          ctx.fillStyle = kind.color;
          ctx.fillRect(left, y, Math.max(0.8 * px, at(ends[i]) - left), (top - bottom) * height);
          ctx.globalAlpha = 1;
          if (outcome === "lost") {
            const x = at(ends[i]), middle = u.bbox.top + (panel.party[i] + 0.83) * height, r = 3 * px;
            ctx.strokeStyle = "#d01c1f"; ctx.lineWidth = 1.2 * px; ctx.beginPath(); ctx.moveTo(x - r, middle - r); ctx.lineTo(x + r, middle + r); ctx.moveTo(x - r, middle + r); ctx.lineTo(x + r, middle - r); ctx.stroke();
          }
        }
        ctx.restore();
      };
      const read = (u) => {
        const { left, top } = u.cursor;
        tip.hidden = true;
        if (left < 0 || left === null) return;
        const value = u.posToVal(left, "x"), near = Math.abs(u.posToVal(left + 2, "x") - value), place = top / (u.over.clientHeight / rows);
        const party = Math.floor(place), up = 1 - (place - party);
        let found = -1;
        for (let i = begin(value - longest - near); i < count && panel.start[i] <= value + near; i++) {
          const [bottom, high] = kinds[panel.kind[i]].rows;
          if (panel.party[i] === party && ends[i] >= value - near && up >= bottom - 0.06 && up <= high + 0.06) found = i;
        }
        if (found < 0) return;
        const peer = panel.peer[found] >= 0 ? ` to ${panel.parties[panel.peer[found]]}` : "";
        const outcome = data.outcomes[panel.outcome[found]];
        tip.textContent = `${panel.parties[party]}: ${kinds[panel.kind[found]].label}${peer}, ${amount(panel.length[found], "s")}, from ${amount(panel.start[found], "s")} to ${amount(ends[found], "s")}; round ${panel.round[found]}${outcome === "done" ? "" : `; ${outcome}`}`;
        tip.hidden = false;
        const edge = host.clientWidth - tip.offsetWidth - 4;
        tip.style.left = `${Math.max(0, Math.min(edge, left + u.over.offsetLeft + 12))}px`;
        tip.style.top = `${top + 44}px`;
      };
      const every = rows <= 14 ? 1 : Math.ceil(rows / 10);
      const plot = new uPlot({
        ...fit(host, Math.round(rows * row + 44)),
        legend: { show: false },
        cursor: { y: false, points: { show: false }, drag: { x: true, y: false } },
        scales: { x: { time: false, min: 0, max: window }, y: { range: [0, rows], dir: -1 } },
        axes: [
          axis("", "s", { size: 26, label: undefined }),
          { stroke: () => color("--ink"), size: 62, gap: 4, font: "11px system-ui, sans-serif", grid: { show: false }, ticks: { show: false },
            splits: () => panel.parties.map((name, i) => i + 0.5).filter((split, i) => i % every === 0), values: (u, splits) => splits.map((split) => panel.parties[Math.floor(split)]) },
        ],
        series: [{}, { scale: "y", show: true, paths: () => null, points: { show: false } }],
        hooks: {
          draw: [draw],
          setCursor: [read],
          setScale: [(u, key) => { if (key === "x") zoom(u.scales.x.min, u.scales.x.max); }],
        },
      }, [[0, whole], [0, 0]], host);
      plot.host = host;
      plots.push(plot);
      live.add(plot);
    }
    zoom(0, window);
    for (const plot of plots) plot.over.addEventListener("dblclick", () => zoom(0, window));
  }

  const redraw = () => live.forEach((plot) => plot.redraw(false, true));
  const resize = () => live.forEach((plot) => { if (plot.host.isConnected) plot.setSize({ width: Math.max(260, plot.host.clientWidth), height: plot.height }); else { plot.destroy(); live.delete(plot); } });
  const views = () => [...live].map((plot) => [plot.scales.x.min, plot.scales.x.max]);
  return { curves, timeline, redraw, resize, views, amount, axis, color, fit, live, make, outline, seen, swatch, three };
})();
