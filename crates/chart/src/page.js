
(() => {
  'use strict';
  const groups = {};
  const between = (from, to, part, log) =>
    log ? from * (to / from) ** part : from + (to - from) * part;
  const group = (text) => text.replace(/^-?\d{5,}/, (n) => n.replace(/\B(?=(\d{3})+$)/g, '\u00a0'));
  // Three digits in the multiple that suits, as in the tables and labels.
  const written = (value, axis) => {
    let [size, name] = axis.multiples.find((m) => value === 0 && m[0] === 1) || axis.multiples[0];
    for (const m of axis.multiples) if (Math.abs(value) / m[0] >= 0.9995) [size, name] = m;
    const n = value / size, a = Math.abs(n);
    if (a === 0) return '0' + name;
    if (axis.whole && Number.isInteger(n)) return group(n.toFixed(0)) + name;
    if (a < 0.001 || a >= 1e9) return n.toExponential(2).replace('e+', 'e') + name;
    return group(n.toFixed(a < 0.9995 ? 3 : a < 9.995 ? 2 : a < 99.95 ? 1 : 0)) + name;
  };
  const make = (parent, name, settings) => {
    const made = document.createElementNS(parent.namespaceURI, name);
    for (const key in settings) made.setAttribute(key, settings[key]);
    return parent.appendChild(made);
  };
  const row = (tip, name, value, kind) => {
    const line = make(tip, kind ? 'div' : 'b', kind === 'note' ? { class: 'note' } : {});
    const left = make(line, 'span', {});
    if (kind && kind !== 'note') make(left, 'i', {}).style.color = kind;
    left.append(name);
    if (value) make(line, 'span', {}).textContent = value;
  };

  for (const figure of document.querySelectorAll('figure[data-axis]')) {
    const plot = figure.firstElementChild, svg = plot.querySelector('svg');
    const { x, y, series, marks } = JSON.parse(figure.querySelector('script').textContent);
    const part = (v, axis) => axis.log
      ? Math.log(v / axis.at[0]) / Math.log(axis.at[1] / axis.at[0])
      : (v - axis.at[0]) / (axis.at[1] - axis.at[0]);
    const px = (v, axis) => between(axis.px[0], axis.px[1], part(v, axis), false);
    for (const s of series) s.px = s.x.map((v) => px(v, x));
    const stops = [...new Set(series.flatMap((s) => s.px))].sort((a, b) => a - b);
    const cross = make(svg, 'g', { class: 'cross', visibility: 'hidden' });
    const bar = make(cross, 'path', {});
    const spots = series.map((s) => make(make(cross, 'g', { class: 'c' + s.index % 7 }), 'circle',
      { r: 4, class: 'sign' }));
    const tip = make(plot, 'div', { class: 'tip' });
    // The values of a series within half a pixel, or what is drawn between its neighbours.
    const read = (s, p) => {
      let from = 0, end = s.px.length;
      while (from < end) { const i = (from + end) >> 1; if (s.px[i] < p - 0.5) from = i + 1; else end = i; }
      let lo = Infinity, hi = -Infinity;
      for (end = from; end < s.px.length && s.px[end] <= p + 0.5; end++)
        if (s.y[end] !== null) { lo = Math.min(lo, s.y[end]); hi = Math.max(hi, s.y[end]); }
      if (lo <= hi) return [lo, hi];
      const [a, b] = [s.y[from - 1], s.y[end]];
      if (s.shape === 'dots' || from === 0 || end === s.px.length || a === null || b === null) return null;
      if (s.shape === 'step') return [a, a];
      const v = between(a, b, (p - s.px[from - 1]) / (s.px[end] - s.px[from - 1]), y.log);
      return [v, v];
    };
    const hide = () => { tip.style.display = 'none'; cross.setAttribute('visibility', 'hidden'); };
    const show = (value) => {
      const p = px(value, x);
      if (!(p >= x.px[0] - 0.5 && p <= x.px[1] + 0.5)) return hide();
      bar.setAttribute('d', `M${p} ${y.px[0]}V${y.px[1]}`);
      tip.textContent = '';
      row(tip, x.log ? written(value, x) : group(String(+(value / x.multiple[0][0]).toFixed(x.decimals)))
        + x.multiple[0][1]);
      series.forEach((s, i) => {
        const found = read(s, p), same = found && written(found[0], y) === written(found[1], y);
        const text = found && (same ? [found[0]] : found).map((v) => written(v, y)).join(' to ');
        row(tip, s.name, text || '–', getComputedStyle(spots[i]).color);
        spots[i].setAttribute('visibility', found ? 'inherit' : 'hidden');
        if (found) { spots[i].setAttribute('cx', p); spots[i].setAttribute('cy', px(found[1], y)); }
      });
      marks.forEach((m, i) => { if (Math.abs(px(m[0], x) - p) < 4) row(tip, `${i + 1}: ${m[1]}`, '', 'note'); });
      cross.setAttribute('visibility', 'visible');
      tip.style.display = 'block';
      const left = p > 440 ? p - 14 - tip.offsetWidth : p + 14;
      tip.style.left = Math.max(0, left) + 'px';
      tip.style.top = y.px[1] + 6 + 'px';
    };
    const all = groups[figure.dataset.axis] ||= [];
    all.push({ show, hide });
    let at = x.px[0];
    const point = (p) => {
      at = Math.min(Math.max(p, x.px[0]), x.px[1]);
      // Where points are few, the nearest one is meant.
      if (stops.length && stops.length <= 120) at = stops.reduce((a, b) => Math.abs(b - p) < Math.abs(a - p) ? b : a);
      const value = between(x.at[0], x.at[1], (at - x.px[0]) / (x.px[1] - x.px[0]), x.log);
      for (const chart of all) chart.show(value);
    };
    const leave = () => { for (const chart of all) chart.hide(); };
    svg.addEventListener('pointermove', (e) => {
      const box = svg.getBoundingClientRect();
      point((e.clientX - box.left) * svg.viewBox.baseVal.width / box.width);
    });
    svg.addEventListener('pointerleave', leave);
    figure.addEventListener('blur', leave);
    figure.addEventListener('keydown', (e) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (e.key === 'Escape') leave();
      if (!by) return;
      e.preventDefault();
      const next = stops.length <= 120 && (by > 0 ? stops.find((s) => s > at + 0.01) : stops.findLast((s) => s < at - 0.01));
      point(next || at + by);
    });
  }
})();
