"use strict";
(() => {
  const sweeps = JSON.parse(document.getElementById("data").textContent);
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const text = v => (v === null || v === undefined) ? "–" : Number(v).toFixed(4);
  sweeps.forEach((sweep, k) => {
    const root = document.getElementById("sweep-" + k), canvas = root.querySelector("canvas");
    const choose = root.querySelector("select"), notions = Object.keys(sweep.fronts);
    const live = root.querySelector("[aria-live]"), body = root.querySelector("tbody");
    let shown = [], picked = -1, hover = -1, box = null;
    notions.forEach(n => choose.add(new Option(n, n)));
    const load = () => {
      shown = sweep.points.map((p, i) => i).filter(i => sweep.points[i].n === choose.value && sweep.points[i].x !== null && sweep.points[i].y !== null);
      shown.sort((a, b) => sweep.points[a].x - sweep.points[b].x || a - b);
      hover = -1; pick(sweep.fronts[choose.value][0] ?? shown[0]);
    };
    const place = p => [box.l + (p.x - box.x0) / (box.x1 - box.x0) * (box.w - box.l - 14), 12 + (box.y1 - p.y) / (box.y1 - box.y0) * (box.h - 56)];
    const draw = () => {
      const ratio = window.devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight, g = canvas.getContext("2d");
      canvas.width = w * ratio; canvas.height = h * ratio; g.scale(ratio, ratio);
      if (!shown.length) return;
      const xs = shown.map(i => sweep.points[i].x), ys = shown.map(i => sweep.points[i].y);
      const span = (a) => { let lo = Infinity, hi = -Infinity; for (const v of a) { if (v < lo) lo = v; if (v > hi) hi = v; } const pad = (hi - lo) * .06 || .02; return [lo - pad, hi + pad]; };
      const [x0, x1] = span(xs), [y0, y1] = span(ys);
      box = { l: 58, w, h, x0, x1, y0, y1 };
      const digits = span => Math.min(6, Math.max(2, Math.ceil(-Math.log10(span / 4)))), dx = digits(x1 - x0), dy = digits(y1 - y0);
      g.font = "12px system-ui, sans-serif"; g.strokeStyle = css("--line"); g.fillStyle = css("--soft"); g.lineWidth = 1;
      for (let i = 0; i <= 4; i++) {
        const x = x0 + (x1 - x0) * i / 4, y = y0 + (y1 - y0) * i / 4, [px] = place({ x, y: y0 }), [, py] = place({ x: x0, y });
        g.beginPath(); g.moveTo(px, 12); g.lineTo(px, h - 44); g.moveTo(box.l, py); g.lineTo(w - 14, py); g.stroke();
        g.textAlign = "center"; g.fillText(x.toFixed(dx), px, h - 28); g.textAlign = "right"; g.fillText(y.toFixed(dy), box.l - 6, py + 4);
      }
      g.textAlign = "center"; g.fillText("test error", (w + box.l) / 2, h - 8);
      g.save(); g.translate(11, h / 2); g.rotate(-Math.PI / 2); g.fillText("worst cell's test loss", 0, 0); g.restore();
      g.fillStyle = css("--before"); g.globalAlpha = shown.length > 2000 ? .35 : .75;
      for (const i of shown) { const [x, y] = place(sweep.points[i]); g.beginPath(); g.arc(x, y, shown.length > 2000 ? 2 : 4, 0, 7); g.fill(); }
      g.globalAlpha = 1; g.fillStyle = css("--after");
      for (const i of sweep.fronts[choose.value]) { const [x, y] = place(sweep.points[i]); g.beginPath(); g.rect(x - 4.5, y - 4.5, 9, 9); g.fill(); }
      for (const [i, colour] of [[hover, "--soft"], [picked, "--pick"]]) if (i >= 0) {
        const [x, y] = place(sweep.points[i]); g.strokeStyle = css(colour); g.lineWidth = 2.5; g.beginPath(); g.arc(x, y, 9, 0, 7); g.stroke();
      }
    };
    const words = i => { const p = sweep.points[i]; return `bound ${p.b}, multiplier bound ${p.B}: ${p.s}, test error ${text(p.x)} (${text(p.i[0])} to ${text(p.i[1])}), worst loss ${text(p.y)}, DP gap ${text(p.d[0])}, EO gap ${text(p.d[1])}`; };
    const pick = i => {
      if (i === undefined) return;
      picked = i; live.textContent = words(i); body.replaceChildren();
      for (const [cell, train, bound, test] of sweep.points[i].c) {
        const row = body.insertRow();
        [cell, text(bound), text(train), text(test)].forEach((v, j) => { const c = row.insertCell(); c.textContent = v; if (j === 2 && train > bound + 1e-6) c.className = "over"; });
      }
      draw();
    };
    const nearest = e => {
      const r = canvas.getBoundingClientRect(), mx = e.clientX - r.left, my = e.clientY - r.top; let best = -1, d = 400;
      for (const i of shown) { const [x, y] = place(sweep.points[i]), q = (x - mx) ** 2 + (y - my) ** 2; if (q < d) { d = q; best = i; } }
      return best;
    };
    canvas.addEventListener("pointermove", e => { const i = nearest(e); if (i !== hover) { hover = i; canvas.title = i >= 0 ? words(i) : ""; draw(); } });
    canvas.addEventListener("click", e => { const i = nearest(e); if (i >= 0) pick(i); });
    canvas.addEventListener("keydown", e => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key]; if (!step) return;
      e.preventDefault(); const at = shown.indexOf(picked); pick(shown[Math.min(shown.length - 1, Math.max(0, at + step))]);
    });
    choose.addEventListener("change", load); addEventListener("resize", draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    load();
  });
})();
