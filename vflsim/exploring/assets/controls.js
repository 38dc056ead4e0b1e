"use strict";
/* The controls: a slider and a box, or a choice, for each knob. They say the knobs' positions in the words of scenarios. */
const knobs = (() => {
  const told = JSON.parse(document.getElementById("told").textContent);
  const { make } = charts;
  const { numbers, parameters, kinds, networks } = told.controls;
  const UNITS = { s: 1, ms: 1e-3, us: 1e-6, bps: 1, kbps: 1e3, Mbps: 1e6, Gbps: 1e9 };
  const STEPS = 400;
  const positions = structuredClone(told.begin);
  const shown = {}; /* by name of a knob: its element, and how it shows a position */
  let changed = () => {}, mean = 1;
  const si = (said) => {
    if (typeof said !== "string") return said;
    const [number, unit] = said.split(" ");
    return Number(number) * (UNITS[unit] ?? 1);
  };
  const round = (value) => Number(value.toPrecision(3));
  const most = (control) => (typeof control.most === "string" ? si(positions[control.most]) ?? 64 : control.most);
  const place = (control, value) => {
    if (control.scale === "whole" || control.scale === "linear") return value;
    if (control.scale === "powers") return Math.log2(value);
    const least = control.least || control.most / 1e5;
    return value < least ? 0 : Math.round(1 + ((STEPS - 1) * Math.log(value / least)) / Math.log(most(control) / least));
  };
  const value = (control, position) => {
    if (control.scale === "whole" || control.scale === "linear") return position;
    if (control.scale === "powers") return 2 ** position;
    if (position === 0 && control.least === 0) return 0;
    const least = control.least || control.most / 1e5;
    return round(least * (most(control) / least) ** (Math.max(0, position - 1) / (STEPS - 1)));
  };
  const ends = (control) => {
    if (control.scale === "powers") return [Math.log2(control.least), Math.log2(control.most), 1];
    return control.scale === "log" ? [control.least === 0 ? 0 : 1, STEPS, 1] : [control.least, most(control), 1];
  };
  const number = (into, name, control, get, set) => {
    const box = make("div", into, { class: "knob", "data-knob": name });
    const id = `knob-${name.replace(".", "-")}`;
    make("label", box, { for: id }, control.label + (control.unit ? ` [${control.unit}]` : ""));
    if (control.hint) make("p", box, { class: "hint", id: `${id}-hint` }, control.hint);
    const [low, high, step] = ends(control);
    const slider = make("input", box, { type: "range", min: low, max: high, step, "aria-label": `${control.label}, slider` });
    const text = make("input", box, { type: "number", id, min: control.least, step: control.scale === "whole" || control.scale === "powers" ? 1 : "any" });
    if (control.hint) text.setAttribute("aria-describedby", `${id}-hint`);
    make("span", box, { class: "unit" }, control.unit);
    let tick = null;
    if (control.word) {
      const label = make("label", box, { class: "tick" });
      tick = make("input", label, { type: "checkbox" });
      label.append(control.word);
      tick.addEventListener("change", () => { set(tick.checked ? control.word : Number(text.value) || control.least); });
    }
    slider.addEventListener("input", () => set(value(control, Number(slider.value))));
    text.addEventListener("input", () => { if (text.value !== "") set(Number(text.value)); });
    text.addEventListener("change", () => { if (text.value === "") show(); });
    const show = () => {
      const said = get(), plain = said === control.word && control.word ? null : said;
      const [, last] = ends(control);
      slider.max = last;
      slider.setAttribute("aria-valuetext", said === undefined ? "as in the scenario" : `${plain ?? control.word} ${plain === null ? "" : control.unit}`.trim());
      if (tick) { tick.checked = said === control.word; slider.disabled = text.disabled = tick.checked; }
      if (plain === null || plain === undefined) return;
      slider.value = place(control, plain);
      if (document.activeElement !== text || Number(text.value) !== plain) text.value = plain;
    };
    return { box, show };
  };
  const unset = (box, name, why) => {
    const line = make("p", box, { class: "unset" });
    const refresh = () => {
      const free = positions[name] === undefined;
      box.classList.toggle("is-unset", free);
      line.replaceChildren(free ? `As in the scenario: ${why}. Moving this replaces it.` : "");
      if (free) return;
      make("button", line, { type: "button" }, "as in the scenario").addEventListener("click", () => {
        delete positions[name];
        if (name === "delay") delete positions.stragglers;
        if (name === "stragglers") delete positions.delay;
        all();
        changed();
      });
    };
    return refresh;
  };
  const simple = (into, name) => {
    const control = numbers[name];
    const inUnit = (said) => (said === control.word || said === undefined ? said : Number((si(said) / (control.unit in UNITS ? control.factor : 1)).toPrecision(12)));
    const saying = (plain) => (plain === control.word || !(control.unit in UNITS) ? plain : `${plain} ${control.unit}`);
    const set = (plain) => { positions[name] = saying(plain); if (name === "stragglers") ensureDelay(); limit(); all(); changed(); };
    const own = number(into, name, control, () => inUnit(positions[name]), set);
    own.set = set;
    if (name in told.unheld) own.refresh = unset(own.box, name, told.unheld[name]);
    shown[name] = own;
  };
  /* Numbers that another knob bounds follow it, as their sliders do. */
  const limit = () => {
    if (!Number.isInteger(positions.clients) || positions.clients < 1) return; /* the server says what is wrong with it */
    for (const name of ["stragglers", "t"]) if (positions[name] > positions.clients) positions[name] = positions.clients;
  };
  const ensureDelay = () => {
    if (positions.delay === undefined) positions.delay = { kind: "exponential", mean: `${round(mean)} s` };
    if (positions.stragglers === undefined) positions.stragglers = 1;
  };
  const choice = (into, name, label, words, get, set) => {
    const box = make("div", into, { class: "knob", "data-knob": name });
    make("label", box, { for: `knob-${name}` }, label);
    const select = make("select", box, { id: `knob-${name}` });
    const fill = () => {
      const present = get(), listed = present === undefined ? ["as in the scenario", ...words] : words;
      select.replaceChildren();
      for (const word of listed) make("option", select, { value: word }, word.replaceAll("_", " "));
      select.value = present ?? "as in the scenario";
    };
    select.addEventListener("change", () => { if (words.includes(select.value)) set(select.value); });
    return { box, show: fill };
  };
  let delayBox = null;
  const delay = (into) => {
    const set = (kind) => {
      const shares = { mean: 1, half: 0.5, quarter: 0.25, more: 1.5 };
      const said = { kind };
      for (const [key, begins] of Object.entries(kinds[kind])) said[key] = typeof begins === "number" ? begins : `${round(shares[begins] * mean)} s`;
      positions.delay = said;
      ensureDelay();
      all();
      changed();
    };
    const own = choice(into, "delay", "kind of delay", Object.keys(kinds), () => positions.delay?.kind, set);
    if ("delay" in told.unheld) own.refresh = unset(own.box, "delay", told.unheld.delay);
    delayBox = make("div", into);
    let made = "";
    const showKind = own.show;
    own.show = () => {
      showKind();
      const keys = Object.keys(positions.delay ?? {}).filter((key) => key !== "kind");
      const now = `${positions.delay?.kind}:${keys}`;
      if (now !== made) {
        made = now;
        delayBox.replaceChildren();
        for (const name of Object.keys(shown).filter((each) => each.startsWith("delay."))) delete shown[name];
        for (const key of keys) {
          const control = parameters[key];
          const get = () => (positions.delay ? Number(si(positions.delay[key]).toPrecision(12)) : undefined);
          const put = (plain) => { positions.delay = { ...positions.delay, [key]: control.unit ? `${plain} ${control.unit}` : plain }; all(); changed(); };
          shown[`delay.${key}`] = number(delayBox, `delay.${key}`, control, get, put);
        }
      }
    };
    shown.delay = own;
  };
  const all = () => {
    shown.delay.show();
    for (const [name, own] of Object.entries(shown)) { if (name !== "delay") own.show(); own.refresh?.(); }
  };
  const group = (form, legend) => { const made = make("fieldset", form); make("legend", made, {}, legend); return made; };
  const build = (form, listener) => {
    changed = listener;
    form.addEventListener("submit", (event) => event.preventDefault());
    const clients = group(form, "Clients");
    simple(clients, "clients");
    simple(clients, "stragglers");
    const delays = group(form, "Delay of a straggler before each upload");
    delay(delays);
    const links = group(form, "Links");
    const network = choice(links, "network", "sharing", networks, () => positions.network, (word) => { positions.network = word; all(); changed(); });
    if ("network" in told.unheld) network.refresh = unset(network.box, "network", told.unheld.network);
    shown.network = network;
    simple(links, "bandwidth");
    simple(links, "latency");
    const protocols = group(form, "Protocols and training");
    for (const key of ["t", "K", "T"]) {
      if (told.having[key].length) simple(protocols, key);
      else make("p", protocols, { class: "unset" }, `${key}: no protocol here has it.`);
    }
    for (const key of ["t", "K", "T"]) if (told.having[key].length) shown[key].box.querySelector("label").append(` of ${told.having[key].join(", ")}`);
    simple(protocols, "batch");
    all();
  };
  /* Show each problem beside its knob; return those that belong to none. */
  const blame = (problems) => {
    for (const box of document.querySelectorAll(".knob")) { box.classList.remove("is-wrong"); box.querySelector(".problem")?.remove(); }
    const rest = [];
    for (const { knob, text } of problems) {
      const named = text.match(/^delay\.(\w+)/)?.[1];
      const own = shown[`delay.${named}`] ?? shown[knob];
      if (!own) { rest.push(text); continue; }
      own.box.classList.add("is-wrong");
      make("p", own.box, { class: "problem", role: "alert" }, text);
    }
    return rest;
  };
  return { build, blame, told, positions: () => positions, learn: (seconds) => { if (seconds > 0) mean = seconds; } };
})();
