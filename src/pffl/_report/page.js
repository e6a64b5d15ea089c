"use strict";
(() => {
  // What terms mean: on focus and on tap (a mouse shows the title anyway).
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
  // Decisions at other thresholds and of other models, from figures in the page.
  const share = (part, all) => all > 0 ? (100 * part / all).toFixed(1) + " %" : "–";
  document.querySelectorAll("figure.slider").forEach(figure => {
    const f = JSON.parse(figure.dataset.figures), input = figure.querySelector("input");
    const line = (name, no, yes, a, b) =>
      [name, share(yes - b, yes), share(a, no), share(yes - b + a, no + yes), share(a + b, no + yes)];
    const draw = () => {
      const k = +input.value, s = f.selected[k], t = f.totals, sums = [0, 0, 0, 0], rows = [];
      f.groups.forEach((name, g) => {
        const own = [t[2 * g], t[2 * g + 1], s[2 * g], s[2 * g + 1]];
        own.forEach((x, i) => { sums[i] += x; });
        if (own[0] + own[1] > 0) rows.push(line(name, ...own));
      });
      rows.push(line("all", ...sums));
      figure.querySelector("output").textContent = f.steps[k] + (k === f.at ? " (in use)" : "");
      const heads = [...figure.querySelectorAll("thead th")].map(th => th.textContent);
      figure.querySelector("tbody").replaceChildren(...rows.map(row => {
        const tr = document.createElement("tr");
        row.forEach((text, i) => {
          const cell = document.createElement(i ? "td" : "th");
          cell.textContent = text; if (i) cell.dataset.title = heads[i]; else cell.scope = "row";
          tr.append(cell);
        });
        return tr;
      }));
    };
    input.addEventListener("input", draw); draw(); figure.hidden = false;
  });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(d => { d.open = !d.querySelector("pre"); }));
})();
