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
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(d => { d.open = !d.querySelector("pre"); }));
})();
