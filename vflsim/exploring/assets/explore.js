"use strict";
/* Ask for figures when a knob has moved, and show what comes. `exploring.idle()` tells whether nothing is awaited. */
const exploring = (() => {
  const { amount, make, swatch } = charts;
  const { told } = knobs;
  const at = (id) => document.getElementById(id);
  const shown = { answer: null, closed: {}, choices: {}, tables: [], pending: false };
  const REST_MS = 100; /* after which a knob counts as left alone, so that the slow figures are worth their work */
  let resting = 0;
  let asking = false, again = false, chosen = null, log = null, slow = null;
  const took = [], marked = []; /* milliseconds until the figures were drawn, and until the best t and K were marked */
  const ask = async (path, body, signal) => {
    const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json", "X-Vflsim-Token": told.token }, body: JSON.stringify(body), signal });
    if (!answer.ok) throw new Error((await answer.json()).problems[0].text);
    return answer;
  };
  const status = (text) => { at("status").textContent = text; };
  const complain = (problems) => {
    const rest = knobs.blame(problems), place = at("problem");
    place.hidden = !rest.length;
    place.textContent = rest.join("\n");
    document.querySelector("main").classList.toggle("has-problems", problems.length > 0);
    for (const section of document.querySelectorAll("main section")) section.classList.toggle("stale", problems.length > 0);
    if (problems.length) status("These positions make no scenario: the figures are those of the last one that was possible.");
  };
  const gone = () => status("vflsim explore has ended: start it again, and open the address that it prints.");
  const quick = async () => {
    if (asking) { again = true; return; }
    asking = true;
    again = false;
    clearTimeout(resting);
    const began = performance.now();
    try {
      const answer = await (await ask("/figures", { knobs: knobs.positions(), timeline: chosen })).json();
      complain(answer.problems ?? []);
      if (!answer.problems) {
        slow?.abort();
        Object.assign(shown, { answer, closed: {}, tables: [], pending: true });
        chosen = answer.timeline.protocol;
        knobs.learn(answer.delay.mean);
        draw();
        at("best").classList.add("stale"); /* until the choices of this position come */
        took.push(performance.now() - began);
        status(`Simulated in ${Math.round(took.at(-1))} ms. Closed forms are pending.`);
      }
      asking = false;
      if (again) quick();
      else if (!answer.problems) {
        const own = shown.answer;
        await look(began);
        if (shown.answer === own && !asking) resting = setTimeout(later, REST_MS);
      }
    } catch (error) {
      asking = false;
      if (error instanceof TypeError) gone();
      else status(String(error.message));
    }
  };
  /* A first look at the best t and K, unless a knob has moved meanwhile. */
  const look = async (began) => {
    const { answer } = shown;
    const { choices, problems } = await (await ask("/choices", { knobs: knobs.positions() })).json();
    if (shown.answer !== answer || asking || problems) return;
    shown.choices = Object.fromEntries(choices.map((each) => [`${each.protocol} ${each.key}`, each]));
    best();
    at("best").classList.remove("stale");
    marked.push(performance.now() - began);
  };
  const later = async () => {
    slow = new AbortController();
    const { signal } = slow;
    const fresh = { ...shown.choices };
    try {
      const reader = (await ask("/later", { knobs: knobs.positions(), timeline: shown.answer.timeline.panels ? null : chosen }, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done || signal.aborted) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) take(JSON.parse(line), fresh);
      }
    } catch (error) {
      if (!signal.aborted) { shown.pending = false; table(); status(error instanceof TypeError ? "The closed forms did not come." : String(error.message)); }
    }
  };
  const take = (piece, fresh) => {
    if (piece.piece === "timeline") {
      shown.answer.timeline = piece;
      timeline();
    } else if (piece.piece === "choice") {
      fresh[`${piece.protocol} ${piece.key}`] = piece;
      shown.choices = { ...fresh };
      at("best").classList.remove("stale");
      best();
    } else if (piece.piece === "closed") {
      shown.closed[piece.protocol] = piece;
      table();
      rounds();
    } else if (piece.piece === "rounds") {
      shown.answer.protocols = piece.protocols;
      table();
      rounds();
      plots.waits(at("waits"), shown.answer);
    } else if (piece.piece === "table") {
      shown.tables.push(piece);
      analyzed();
    } else if (piece.piece === "problem") {
      shown.pending = false;
      table();
      complain([{ knob: null, text: piece.text }]);
    } else if (piece.piece === "done") {
      shown.pending = false;
      table();
      status(`Simulated in ${Math.round(took.at(-1))} ms; closed forms, more rounds and all choices are there.`);
    }
  };
  const draw = () => {
    table();
    rounds();
    const { delay } = shown.answer;
    at("delay-told").textContent = `${delay.kind.replaceAll("_", " ")} of ${clients(delay.clients)}${delay.kinds > 1 ? "" : ", as of all clients"}: mean ${delay.mean === null ? "infinite" : amount(delay.mean, "s")}, median ${amount(delay.quantiles["0.5"], "s")}, 90 % within ${amount(delay.quantiles["0.9"], "s")}, 99 % within ${amount(delay.quantiles["0.99"], "s")}${delay.atoms.length ? "; it has no density" : ""}.${delay.mean === null ? "" : " Dashed: the mean."}`;
    plots.delay(at("density"), at("survival"), delay);
    best();
    analyzed();
    plots.waits(at("waits"), shown.answer);
    timeline();
    at("yaml").textContent = shown.answer.yaml;
    at("changed").textContent = shown.answer.changed.length ? `Changed: ${shown.answer.changed.join(", ")}.` : "Nothing has been changed.";
  };
  const clients = (list) => {
    const parts = [];
    for (const one of list) { const last = parts.at(-1); if (last && last[1] === one - 1) last[1] = one; else parts.push([one, one]); }
    return `client${list.length > 1 ? "s" : ""} ${parts.map(([first, end]) => (first === end ? first : `${first}–${end}`)).join(", ")}`;
  };
  const rounds = () => plots.rounds({ plot: at("rounds"), keys: at("keys"), read: at("read-rounds"), logarithmic: at("logarithmic") }, shown.answer, shown.closed, log);
  const best = () => plots.best(at("best"), shown.answer, Object.values(shown.choices).filter((each) => each.best !== null), ["t", "K"].some((key) => told.having[key].length));
  /* Five digits, as many as vflsim analyze prints. */
  const SCALES = { s: [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]], B: [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]] };
  const exact = (value, unit) => {
    const round = Number(value.toPrecision(5)), scales = SCALES[unit] ?? [[1, ""]];
    const [scale, name] = scales.find(([least]) => (round === 0 ? least === 1 : Math.abs(round) >= least)) ?? scales.at(-1);
    return `${Number((round / scale).toPrecision(5))} ${name}`.trim();
  };
  const range = (low, high, unit) => {
    const [one, other] = [exact(low, unit), exact(high, unit)];
    return one === other ? one : `${one} … ${other}`;
  };
  const table = () => {
    const place = at("table"), said = new Map();
    const note = (text, name) => said.set(text, [...(said.get(text) ?? []), name]);
    place.replaceChildren();
    const head = make("tr", make("thead", place));
    for (const [text, words] of [["protocol", true], ["mean round, simulated"], ["mean round, closed form"], ["bytes a round"], ["embeddings a second"], ["rounds"]]) make("th", head, { scope: "col", class: words ? "words" : "" }, text);
    const body = make("tbody", place);
    for (const each of shown.answer.protocols) {
      const row = make("tr", body, { "data-protocol": each.name });
      const first = make("td", row, { class: "words" });
      first.append(swatch({ ...shown.answer.looks[each.name], dash: [] }), each.name);
      const cell = (value, text) => { const made = make("td", row, {}, value === null ? "—" : text); if (value !== null) made.dataset.value = value; };
      cell(each.step_s, each.step_s === null || exact(each.step_s, "s"));
      closedCell(row, each.name, note);
      cell(each.round_bytes, each.round_bytes === null || exact(each.round_bytes, "B"));
      cell(each.used_per_s, each.used_per_s === null || charts.three(each.used_per_s));
      cell(each.rounds, String(each.rounds));
      if (each.error) note(each.error, each.name);
      if (each.by_events) note(`simulated event by event, which takes longer, so fewer rounds come at once: ${each.by_events}`, each.name);
    }
    const notes = at("notes");
    notes.replaceChildren();
    for (const [text, names] of said) make("li", notes, {}, `${names.join(", ")}: ${text}.`);
  };
  const closedCell = (row, name, note) => {
    const own = shown.closed[name];
    const cell = make("td", row, { class: "closed" });
    if (!own) { cell.append(shown.pending ? "pending" : "—"); return; }
    const found = own.rows.find((each) => each.quantity === "round duration");
    if (!found || found.reason) { cell.append("none"); note(`no closed form: ${found?.reason ?? "the protocol derives none"}`, name); return; }
    cell.dataset.value = found.mean;
    cell.dataset.upper = found.mean_upper;
    cell.append(range(found.mean, found.mean_upper, "s"));
    const bounds = found.known === "bounds" && found.conditions.find((each) => each.startsWith("bounds"));
    if (bounds) note(bounds, name);
    const others = own.rows.filter((each) => !each.reason && each.quantity !== "round duration");
    if (others.length) note(others.map((each) => `${each.quantity} ${range(each.mean, each.mean_upper, each.unit)}${each.clients.length ? ` of ${clients(each.clients)}` : ""}`).join("; "), name);
  };
  const analyzed = () => {
    const place = at("analyzed");
    place.replaceChildren();
    for (const each of shown.tables) {
      make("h3", place, {}, `${each.protocol}: closed forms of ${each.title}`);
      const table = make("table", make("div", place, { class: "wide" }), { class: "sortable" });
      const head = make("tr", make("thead", table));
      for (const name of each.columns) make("th", head, { scope: "col" }, name);
      const body = make("tbody", table);
      for (const row of each.rows) { const line = make("tr", body, row[0] === each.best ? { class: "is-best" } : {}); for (const text of row) make("td", line, {}, text); }
      for (const note of each.notes) make("p", place, { class: "notes" }, note);
    }
  };
  const timeline = () => {
    const { timeline: data } = shown.answer, place = at("timeline"), whose = at("whose");
    if (!whose.contains(document.activeElement)) {
      whose.replaceChildren();
      for (const each of shown.answer.protocols) {
        const label = make("label", whose), input = make("input", label, { type: "radio", name: "whose", value: each.name });
        input.checked = each.name === data.protocol;
        label.append(each.name);
        input.addEventListener("change", () => { chosen = each.name; quick(); });
      }
    }
    plots.clear(place);
    if (!data.panels) { at("timeline-told").textContent = `${data.protocol} has many messages: its timeline is pending.`; return; }
    at("timeline-told").textContent = `${data.rounds} round${data.rounds > 1 ? "s" : ""} of ${data.protocol}, seed ${shown.answer.seed}${data.rounds < 5 ? ": more have too many messages to draw" : ""}.${data.error ? ` ${data.error}` : ""}`;
    charts.timeline(place, data);
  };
  const say = (text, wrong = false) => { const place = at("said"); place.textContent = text; place.classList.toggle("problem", wrong); };
  const body = (more = {}) => ({ knobs: knobs.positions(), name: at("name").value, ...more });
  const save = async (overwrite) => {
    const answer = await (await ask("/save", body({ overwrite }))).json();
    at("replace").hidden = !answer.problems?.some(({ text }) => text.includes("this file exists"));
    if (answer.problems) say(answer.problems.map(({ text }) => text).join("\n"), true);
    else say(`Saved as ${answer.saved}: vflsim run ${answer.saved}`);
  };
  let following = 0;
  const follow = async () => {
    clearTimeout(following);
    try {
      const state = await (await fetch(`/study?token=${encodeURIComponent(told.token)}`)).json();
      study(state);
      if (state.state === "running") following = setTimeout(follow, 1000);
    } catch { gone(); }
  };
  const study = (state) => {
    if (state.state === "none") return;
    at("study").hidden = false;
    at("stop").hidden = state.state !== "running";
    at("run").disabled = state.state === "running";
    const line = at("study-state");
    line.replaceChildren(state.state === "running" ? `${state.results}: running. ${state.progress}` : `${state.results}: ${state.state}. `);
    if (state.report) make("a", line, { href: `/report?token=${encodeURIComponent(told.token)}`, target: "_blank", rel: "noopener" }, "Open its report");
    const output = at("study-output");
    if (output.textContent !== state.output) { output.textContent = state.output; output.scrollTop = output.scrollHeight; }
  };
  const start = async () => {
    const answer = await (await ask("/run", body({ timing_only: at("timing-only").checked }))).json();
    if (answer.problems) { say(answer.problems.map(({ text }) => text).join("\n"), true); return; }
    say("");
    study(answer);
    follow();
  };
  const click = (id, action) => at(id).addEventListener("click", () => action().catch((error) => (error instanceof TypeError ? gone() : say(String(error.message), true))));
  at("name").value = told.name.endsWith("explored") ? told.name : `${told.name.slice(0, 55)}-explored`;
  click("copy", async () => {
    try { await navigator.clipboard.writeText(shown.answer.yaml); say("Copied."); }
    catch { getSelection().selectAllChildren(at("yaml")); say("This browser does not let pages copy: the text is selected, so press Ctrl-C."); }
  });
  click("save", () => save(false));
  click("replace", () => save(true));
  click("run", start);
  click("stop", async () => study(await (await ask("/stop", {})).json()));
  at("logarithmic").addEventListener("change", () => { log = at("logarithmic").checked; rounds(); });
  let waiting = 0;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(charts.resize, 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (shown.answer) draw(); });
  knobs.build(at("controls"), quick);
  quick();
  follow();
  return { idle: () => !asking && shown.answer !== null && !shown.pending, answered: () => !asking && !again, shown, took: () => took, marked: () => marked };
})();
