"use strict";
(() => {
  // What words mean: on focus and on tap (a mouse shows the title by itself).
  const tip = document.getElementById("tip");
  const hide = () => { tip.hidden = true; };
  const show = (at, text) => {
    tip.textContent = text; tip.hidden = false;
    const box = at.getBoundingClientRect(), wide = document.documentElement.clientWidth;
    tip.style.left = Math.max(8, Math.min(box.left, wide - tip.offsetWidth - 8)) + scrollX + "px";
    tip.style.top = box.bottom + scrollY + 6 + "px";
  };
  const explained = target => {
    const term = target.closest(".term"); if (term) return [term, term.title];
    const entry = target.closest(".stack td"); if (!entry || innerWidth > 896) return null;
    const head = entry.closest("table").tHead.rows[0].cells[entry.cellIndex].querySelector(".term");
    return head ? [entry, head.title] : null;
  };
  document.addEventListener("focusin", e => { const found = e.target.closest(".term"); found ? show(found, found.title) : hide(); });
  document.addEventListener("click", e => { const found = explained(e.target); found ? show(...found) : hide(); });
  document.addEventListener("keydown", e => { if (e.key === "Escape") hide(); });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(d => { d.open = !d.querySelector("pre"); }));

  // A run that goes on: the page loads itself again, until somebody asks it not to.
  const again = document.getElementById("again");
  if (again) setInterval(() => { if (again.checked) location.reload(); }, 1000 * again.dataset.seconds);

  // Models to go through: slider and click move figures, table and sentence together.
  const data = JSON.parse(document.getElementById("data").textContent);
  const shown = v => v === null ? "–" : Number(v).toFixed(4);
  document.querySelectorAll(".explorer").forEach(root => {
    const { names, models, titles } = data[root.dataset.n], find = s => root.querySelector(s);
    const slider = find("input[type=range]"), area = find(".plot .area"), dots = find(".dots");
    const svg = "http://www.w3.org/2000/svg", ring = document.createElementNS(svg, "svg"), circle = document.createElementNS(svg, "circle");
    circle.setAttribute("r", 10); ring.setAttribute("class", "picked"); ring.append(circle); if (area) area.append(ring);
    const low = Number(dots.dataset.low), high = Number(dots.dataset.high);
    const at = v => Math.max(0, Math.min(100, 100 * (v - low) / (high - low))) + "%";
    const rows = [...dots.querySelectorAll(".dot-row")], series = { bound: 0, after: 1, held: 2, promised: 3 };
    const move = (row, c) => row.querySelectorAll("[data-series]").forEach(g => {
      const v = c[series[g.dataset.series]]; g.style.display = v === null || v === undefined ? "none" : "";
      if (v === null || v === undefined) return;
      const line = g.querySelector("line"), mark = g.querySelector(".mark"); mark.setAttribute("x", at(v));
      if (g.dataset.series === "promised") { line.setAttribute("x1", at(c[2])); line.setAttribute("x2", at(v)); }
    });
    const pick = i => {
      const model = models[i]; slider.value = i;
      find(".label").textContent = model.t;
      find(".said").hidden = !model.s.length; find(".said").replaceChildren(...model.s.map(text => { const p = document.createElement("p"); p.textContent = text; return p; }));
      ring.style.display = model.p ? "" : "none"; if (model.p) { ring.setAttribute("x", model.p[0] + "%"); ring.setAttribute("y", model.p[1] + "%"); }
      const cells = names.map((name, z) => model.c.slice(4 * z, 4 * z + 4));
      find(".pair > :last-child").hidden = !model.c.length; rows.forEach((row, z) => move(row, cells[z]));
      const body = find(".scroll tbody"); body.replaceChildren();
      if (model.c.length) names.forEach((name, z) => {
        const row = body.insertRow(), head = document.createElement("th"), text = document.createElement("bdi"); head.scope = "row"; text.textContent = name; head.append(text); row.append(head);
        cells[z].forEach((v, j) => {
          const over = j > 0 && v !== null && cells[z][0] !== null && v > cells[z][0] + 1e-5, cell = row.insertCell();
          cell.textContent = (over ? "▲" : "") + shown(v); cell.dataset.title = titles[j]; if (over) cell.className = j === 3 ? "caution" : "bad";
        });
      });
    };
    slider.addEventListener("input", () => pick(Number(slider.value)));
    if (area) area.addEventListener("click", e => {
      const box = area.getBoundingClientRect(); let best = -1, least = 900;
      models.forEach((model, i) => { if (!model.p) return; const d = (model.p[0] / 100 * box.width - e.clientX + box.left) ** 2 + (model.p[1] / 100 * box.height - e.clientY + box.top) ** 2; if (d < least) { least = d; best = i; } });
      if (best >= 0) pick(best);
    });
    pick(Number(root.dataset.first));
  });
})();
