"use strict";
/* Follow the study: ask for its state, and take over the new page when there is one. */
(() => {
  const line = document.querySelector(".live");
  let shown = null;
  const ask = async () => {
    try {
      const { state, progress } = await (await fetch("state")).json();
      line.textContent = progress;
      if (shown !== null && state !== shown) await renew();
      shown = state;
    } catch {
      line.textContent = "vflsim watch has ended: this page no longer follows the study.";
    }
    setTimeout(ask, 2000);
  };
  const renew = async () => {
    const fresh = new DOMParser().parseFromString(await (await fetch("/")).text(), "text/html");
    const open = new Set([...document.querySelectorAll("details[open]")].map((each) => each.id)), place = scrollY;
    document.title = fresh.title;
    document.querySelectorAll("head style").forEach((style, i) => { style.textContent = fresh.querySelectorAll("head style")[i].textContent; });
    document.querySelector("main").replaceWith(document.adoptNode(fresh.querySelector("main")));
    for (const each of document.querySelectorAll("details")) each.open = open.has(each.id);
    start();
    charts.resize();
    scrollTo(0, place);
  };
  ask();
})();
