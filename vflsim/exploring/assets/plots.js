"use strict";
/* The page's figures, each drawn anew from an answer of the server. */
const plots = (() => {
  const { amount, axis, color, fit, live, make, outline, seen, swatch, three } = charts;
  const hidden = new Set();
  const clear = (host) => {
    for (const plot of live) if (host.contains(plot.host)) { plot.destroy(); live.delete(plot); }
    host.replaceChildren();
  };
  /* Ticks of a logarithmic axis: powers of ten, and 2 and 5 times these where they are few. */
  const decades = (u, axisNumber, min, max) => {
    const found = [];
    for (const leads of [[1], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 7]]) {
      found.length = 0;
      for (let power = Math.floor(Math.log10(min)); power <= Math.ceil(Math.log10(max)); power++) for (const lead of leads) { const tick = Number(`${lead}e${power}`); if (tick >= min && tick <= max) found.push(tick); }
      if (found.length >= 3) break;
    }
    return found;
  };
  const given = (options) => Object.fromEntries(Object.entries(options).filter(([, value]) => value));
  /* A plane with axes, on which `draw` draws; `read` gets the x under the pointer, or null. */
  const plane = (host, { x, y, xLabel, yLabel, unit, yUnit = "", log = false, yLog = false, height = 260, ySize = 58, draw, read, xTicks, xSplits, ySplits, yTicks }) => {
    clear(host);
    const plot = new uPlot({
      ...fit(host, height),
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false } },
      scales: { x: { time: false, distr: log ? 3 : 1, range: (u, min, max) => (min === null ? x : [min, max]) }, y: { distr: yLog ? 3 : 1, range: y } },
      axes: [
        axis(xLabel, unit, { size: 28, labelSize: xLabel ? 18 : 0, ...(xLabel ? {} : { label: undefined }), ...given({ values: xTicks, splits: xSplits ?? (log && decades), filter: log && ((u, splits) => splits) }) }),
        axis(yLabel, yUnit, { size: ySize, labelSize: yLabel ? 18 : 0, ...(yLabel ? {} : { label: undefined }), ...given({ values: yTicks, splits: ySplits ?? (yLog && decades), filter: yLog && ((u, splits) => splits) }) }),
      ],
      series: [{}, { show: true, paths: () => null, points: { show: false } }],
      hooks: {
        draw: [(u) => {
          u.ctx.save();
          u.ctx.beginPath();
          u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
          u.ctx.clip();
          draw(u, u.ctx, (value) => u.valToPos(value, "x", true), (value) => u.valToPos(value, "y", true));
          u.ctx.restore();
        }],
        setCursor: read ? [(u) => read(u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null)] : [],
      },
    }, [x, y], host);
    plot.host = host;
    live.add(plot);
    return plot;
  };
  const stroke = (ctx, points, { colour, dash = [], width = 2, step = false }) => {
    ctx.strokeStyle = colour;
    ctx.lineWidth = width * devicePixelRatio;
    ctx.setLineDash(dash.map((each) => each * devicePixelRatio));
    ctx.beginPath();
    let open = false, before = 0;
    for (const [x, y] of points) {
      if (!Number.isFinite(x) || !Number.isFinite(y)) { open = false; continue; }
      if (open && step) ctx.lineTo(x, before);
      open ? ctx.lineTo(x, y) : ctx.moveTo(x, y);
      open = true;
      before = y;
    }
    ctx.stroke();
    ctx.setLineDash([]);
  };
  const last = (xs, at) => { let low = 0, high = xs.length; while (low < high) { const mid = (low + high) >> 1; if (xs[mid] <= at) low = mid + 1; else high = mid; } return low - 1; };
  const between = (xs, ys, at) => {
    const place = last(xs, at);
    if (place < 0) return 0;
    if (place >= xs.length - 1) return ys[xs.length - 1];
    return ys[place] + ((ys[place + 1] - ys[place]) * (at - xs[place])) / (xs[place + 1] - xs[place]);
  };
  const percent = (share) => `${three(100 * share)} %`;

  /* Distribution of a round's duration: simulated as steps, closed forms dashed, bounds as areas. */
  const rounds = (hosts, answer, closed, wish) => {
    const names = answer.protocols.filter((each) => each.ecdf.x.length).map((each) => each.name);
    const own = Object.fromEntries(answer.protocols.map((each) => [each.name, each]));
    const shown = names.filter((name) => !hidden.has(name));
    const positive = shown.flatMap((name) => own[name].ecdf.x.filter((x) => x > 0));
    const means = shown.map((name) => own[name].step_s).filter((mean) => mean > 0);
    const log = wish ?? Math.max(...means) > 20 * Math.min(...means);
    const low = positive.length ? Math.min(...positive) : 0, high = positive.length ? Math.max(...positive) : 1;
    const x = log ? [low / 1.3 || 1e-3, high * 1.3] : [0, high * 1.03];
    const draw = (u, ctx, ax, ay) => {
      for (const name of shown) {
        const look = answer.looks[name], colour = seen(look.color), curve = closed[name]?.curve;
        if (curve) {
          const exact = curve.lower.every((value, i) => value === curve.upper[i]);
          if (!exact) {
            ctx.beginPath();
            curve.x.forEach((value, i) => (i ? ctx.lineTo(ax(value), ay(curve.upper[i])) : ctx.moveTo(ax(value), ay(curve.upper[i]))));
            for (let i = curve.x.length - 1; i >= 0; i--) ctx.lineTo(ax(curve.x[i]), ay(curve.lower[i]));
            ctx.closePath();
            ctx.globalAlpha = 0.28; ctx.fillStyle = colour; ctx.fill(); ctx.globalAlpha = 1;
          }
          for (const side of exact ? [curve.lower] : [curve.lower, curve.upper]) {
            stroke(ctx, curve.x.map((value, i) => [ax(value), ay(side[i])]), { colour: color("--ink"), dash: [5, 4], width: 1.2 });
          }
        }
        const { x: xs, y: ys } = own[name].ecdf;
        const points = [[ax(log ? x[0] : 0), ay(0)], ...xs.map((value, i) => [ax(Math.max(value, log ? x[0] : 0)), ay(ys[i])]), [ax(1e9), ay(1)]];
        stroke(ctx, points, { colour, step: true });
        const mark = new Path2D(outline(look.marker, ax(xs[Math.floor(xs.length / 2)]), ay(0.5), 4.5 * devicePixelRatio));
        ctx.fillStyle = look.hollow ? color("--ground") : colour; ctx.fill(mark);
        if (look.hollow) { ctx.strokeStyle = colour; ctx.stroke(mark); }
      }
    };
    const read = (at) => {
      hosts.read.textContent = at === null ? "" : `at ${amount(at, "s")}: ` + shown.map((name) => {
        const place = last(own[name].ecdf.x, at), curve = closed[name]?.curve;
        const simulated = percent(place < 0 ? 0 : own[name].ecdf.y[place]);
        if (!curve) return `${name} ${simulated}`;
        const ends = [curve.lower, curve.upper].map((side) => percent(between(curve.x, side, at)));
        return `${name} ${simulated} (closed form ${ends[0] === ends[1] ? ends[0] : ends.join(" to ")})`;
      }).join("; ");
    };
    hosts.logarithmic.checked = log;
    plane(hosts.plot, { x, y: [0, 1], log, xLabel: "a round’s duration", unit: "s", yLabel: "share of rounds", height: hosts.plot.clientWidth < 520 ? 250 : 320, draw, read });
    hosts.keys.replaceChildren();
    for (const name of names) {
      const button = make("button", hosts.keys, { type: "button", "aria-pressed": !hidden.has(name) });
      button.append(swatch({ ...answer.looks[name], dash: [] }), name);
      button.addEventListener("click", () => {
        hidden.has(name) ? hidden.delete(name) : hidden.add(name);
        rounds(hosts, answer, closed, wish);
        [...hosts.keys.children].find((each) => each.textContent === name).focus();
      });
    }
    const key = (text, paint) => { const one = make("span", hosts.keys); const mark = make("i", one); paint(mark.style); one.append(text); };
    const kinds = names.map((name) => closed[name]?.curve).filter(Boolean).map((curve) => curve.lower.every((value, i) => value === curve.upper[i]));
    if (kinds.length) key("closed form", (style) => { style.background = "none"; style.borderTop = "2px dashed currentColor"; style.height = "0"; style.borderRadius = "0"; });
    if (kinds.includes(false)) key("between its bounds", (style) => { style.background = "var(--soft)"; style.opacity = "0.35"; });
  };

  const delay = (density, survival, told) => {
    const colour = () => color("--accent");
    const ys = told.density.y.filter((value) => value !== null);
    const top = Math.min(Math.max(...ys, 0), 40 * (ys[Math.floor(ys.length / 2)] || Infinity)) || 1;
    const end = told.density.x.at(-1);
    plane(density, { x: [0, end], y: [0, 1.08 * top], xLabel: "delay", unit: "s", yLabel: told.atoms.length ? "probability" : "density [1/s]", height: 220, draw: (u, ctx, ax, ay) => {
      if (ys.length) {
        ctx.beginPath();
        ctx.moveTo(ax(told.density.x[0]), ay(0));
        told.density.x.forEach((x, i) => ctx.lineTo(ax(x), ay(Math.min(told.density.y[i] ?? 2 * top, 2 * top))));
        ctx.lineTo(ax(end), ay(0));
        ctx.globalAlpha = 0.18; ctx.fillStyle = colour(); ctx.fill(); ctx.globalAlpha = 1;
        stroke(ctx, told.density.x.map((x, i) => [ax(x), ay(Math.min(told.density.y[i] ?? 2 * top, 2 * top))]), { colour: colour() });
      }
      for (const atom of told.atoms) stroke(ctx, [[ax(atom), ay(0)], [ax(atom), ay(top)]], { colour: colour(), width: 3 });
      if (told.mean !== null) stroke(ctx, [[ax(told.mean), ay(0)], [ax(told.mean), ay(2 * top)]], { colour: color("--ink"), dash: [3, 4], width: 1.2 });
    } });
    const tail = told.survival;
    plane(survival, { x: [0, tail.x.at(-1) || 1], y: [1e-4, 1.3], yLog: true, xLabel: "delay", unit: "s", yLabel: "share of delays", height: 220, ySize: 66, draw: (u, ctx, ax, ay) => {
      stroke(ctx, tail.x.map((x, i) => [ax(x), ay(Math.max(tail.y[i] ?? 0, 1e-5))]), { colour: colour(), step: told.atoms.length > 0 });
    } });
  };

  const waits = (host, answer) => {
    const panels = answer.protocols.filter((each) => Object.keys(each.waited).length);
    clear(host);
    for (const each of panels) {
      const box = make("div", host, { class: "wait-panel" });
      const head = make("h3", box);
      head.append(swatch({ ...answer.looks[each.name], dash: [] }), each.name);
      const nobody = each.waited["0"];
      make("span", head, {}, `${each.rounds} rounds${nobody > 0 ? `; ${percent(nobody)} of steps wait for no client` : ""}`);
      const clients = answer.clients, shares = Array.from({ length: clients }, (_, i) => each.waited[i + 1]);
      const top = Math.max(...shares.filter((share) => share !== undefined), 0.01);
      const every = Math.max(1, Math.ceil(clients / 14));
      const plot = make("div", box, { class: "plot", role: "img", "aria-label": `${each.name}: ${shares.map((share, i) => (share ? `client ${i + 1} ${percent(share)}` : "")).filter(Boolean).join(", ") || "no client is waited for"}` });
      plane(plot, { x: [0.4, clients + 0.6], y: [0, 1.1 * top], xLabel: each === panels.at(-1) ? "client" : "", unit: "", yLabel: "", ySize: 54, height: each === panels.at(-1) ? 118 : 100, ySplits: () => [0, top / 2, top], yTicks: (u, values) => values.map((value) => `${+(100 * value).toPrecision(2)} %`), xSplits: () => Array.from({ length: Math.ceil(clients / every) }, (_, i) => 1 + i * every), xTicks: (u, splits) => splits.map(String), draw: (u, ctx, ax, ay) => {
        const width = Math.max(1, 0.8 * (ax(2) - ax(1)));
        shares.forEach((share, i) => {
          if (share === undefined) { ctx.fillStyle = color("--card"); ctx.fillRect(ax(i + 0.5), u.bbox.top, ax(2) - ax(1), u.bbox.height); return; }
          ctx.fillStyle = seen(answer.looks[each.name].color);
          ctx.fillRect(ax(i + 1) - width / 2, ay(share), width, ay(0) - ay(share));
        });
      } });
    }
  };

  const best = (host, answer, found, possible) => {
    clear(host);
    if (!found.length) { make("p", host, { class: "notes" }, possible ? "pending" : "No protocol here has a t or K."); return; }
    const boxes = found.map(() => make("div", host, { class: "best-choice" })); /* all of them first: they share the width */
    for (const [i, each] of found.entries()) {
      const box = boxes[i];
      make("h3", box, {}, `${each.protocol}: mean round by ${each.key}`);
      const plot = make("div", box, { class: "plot" });
      const xs = each.rows.map((row) => row.value), ys = each.rows.map((row) => row.step_s);
      const low = Math.min(...ys.filter((y) => y > 0)), high = Math.max(...ys), log = high > 20 * low;
      const look = answer.looks[each.protocol];
      const margin = Math.max(0.5, 0.03 * (xs.at(-1) - xs[0]));
      const splits = xs.length <= 10 ? xs : xs.filter((_, i) => i % Math.ceil(xs.length / 10) === 0);
      plane(plot, { x: [xs[0] - margin, xs.at(-1) + margin], y: log ? [low / 1.6, high * 1.6] : [0, 1.12 * high || 1], yLog: log, xLabel: each.key, unit: "", yLabel: "mean round", yUnit: "s", ySize: 66, height: 210, xSplits: () => splits, xTicks: (u, values) => values.map(String), draw: (u, ctx, ax, ay) => {
        stroke(ctx, [[ax(each.present), u.bbox.top], [ax(each.present), u.bbox.top + u.bbox.height]], { colour: color("--soft"), dash: [3, 4], width: 1.2 });
        stroke(ctx, xs.map((x, i) => [ax(x), ay(ys[i])]), { colour: seen(look.color), width: 1 });
        xs.forEach((x, i) => {
          const top = x === each.best;
          ctx.fillStyle = seen(look.color);
          ctx.fill(new Path2D(outline(top ? "*" : "o", ax(x), ay(ys[i]), (top ? 7.5 : 3.2) * devicePixelRatio)));
          if (top) { ctx.strokeStyle = color("--ink"); ctx.lineWidth = devicePixelRatio; ctx.stroke(new Path2D(outline("*", ax(x), ay(ys[i]), 7.5 * devicePixelRatio))); }
        });
      } });
      const row = each.rows.find((one) => one.value === each.best);
      const near = each.near.length ? ` (or ${each.near.join(", ")}: within 2 %)` : "";
      make("p", box, {}, `★ best ${each.key}: ${each.best}${near}, by the ${each.criterion}; ${amount(row.step_s, "s")} a round. Now ${each.present} (dashed line).`);
      const counts = [...new Set(each.rows.map((one) => one.rounds))];
      make("p", box, { class: "notes" }, `${each.all ? "All possible values" : `${each.rows.length} of the possible values`}, ${counts.length > 1 ? `${Math.min(...counts)} to ${Math.max(...counts)}` : counts[0]} rounds each, on the same draws.`);
    }
  };
  return { rounds, delay, waits, best, clear };
})();
