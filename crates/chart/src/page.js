// The values under the mouse, on all charts of a section that share an axis.
const group = (text) => text.replace(/^-?\d{5,}/, (n) => n.replace(/\B(?=(\d{3})+$)/g, '\u00a0'));
// Three digits in the multiple that suits, as in the tables and labels.
const written = (value, axis) => {
  let [size, name] = axis.multiples.find((m) => value === 0 && m[0] === 1) || axis.multiples[0];
  for (const m of axis.multiples) if (Math.abs(value) / m[0] >= 0.9995) [size, name] = m;
  const n = value / size, a = Math.abs(n);
  if (a === 0 || (axis.whole && Number.isInteger(n) && a < 1e15)) return group(n.toFixed(0)) + name;
  if (a < 0.001 || a >= 1e9) return n.toExponential(2).replace('e+', 'e') + name;
  return group(n.toFixed(Math.max(0, 2 - Math.floor(Math.log10(a * 1.000502))))) + name;
};
const between = (a, b, part, log) => log ? a * (b / a) ** part : a + (b - a) * part;
const make = (parent, name, settings) => {
  const made = parent.appendChild(document.createElementNS(parent.namespaceURI, name));
  for (const key in settings) made.setAttribute(key, settings[key]);
  return made;
};
const together = {};
for (const figure of document.querySelectorAll('figure[data-axis]')) {
  const plot = figure.firstElementChild, svg = plot.firstElementChild;
  const { x, y, series, marks } = JSON.parse(figure.querySelector('script').textContent);
  const part = (v, [lo, hi], log) => log ? Math.log(v / lo) / Math.log(hi / lo) : (v - lo) / (hi - lo);
  const px = (v, axis) => between(...axis.px, part(v, axis.at, axis.log));
  for (const s of series) s.px = s.x.map((v) => px(v, x));
  const stops = [...new Set(series.flatMap((s) => s.px))].sort((a, b) => a - b);
  const cross = make(svg, 'g', { class: 'cross', visibility: 'hidden' }), bar = make(cross, 'path');
  const spots = series.map((s) => make(make(cross, 'g', { class: s.colour }), 'circle', { r: 4, class: 'sign' }));
  const tip = make(plot, 'div', { class: 'tip', style: `top:${y.px[1] + 6}px` });
  // The least and the greatest within half a pixel, or else what is drawn there.
  const read = (s, p) => {
    const near = s.y.filter((v, i) => v !== null && Math.abs(s.px[i] - p) <= 0.5);
    if (near.length) return [Math.min(...near), Math.max(...near)];
    const i = s.px.findLastIndex((at) => at < p), [a, b] = [s.y[i] ?? null, s.y[i + 1] ?? null];
    if (s.shape === 'dots' || a === null || b === null) return null;
    const v = s.shape === 'step' ? a : between(a, b, part(p, s.px.slice(i, i + 2)), y.log);
    return [v, v];
  };
  const row = (name, value, colour) => {
    const line = make(tip, colour ? 'div' : 'p'), left = make(line, 'span');
    if (colour) make(left, 'i').style.color = colour;
    left.append(name || (colour ? y.label : ''));
    make(line, 'b').textContent = value;
  };
  // Shows what is at a value of the axis, or hides it again.
  const show = (value) => {
    cross.setAttribute('visibility', value === null ? 'hidden' : 'visible');
    tip.style.display = value === null ? 'none' : 'block';
    if (value === null) return;
    const p = px(value, x), exact = value / x.multiple[0][0];
    tip.textContent = '';
    row('', x.log ? written(value, x) : group(exact.toFixed(x.decimals)) + x.multiple[0][1]);
    series.forEach((s, i) => {
      const found = read(s, p), texts = new Set((found || []).map((v) => written(v, y)));
      row(s.name, [...texts].join(' to ') || '–', getComputedStyle(spots[i]).color);
      spots[i].setAttribute('visibility', found ? 'inherit' : 'hidden');
      if (found) spots[i].setAttribute('transform', `translate(${p} ${px(found[1], y)})`);
    });
    marks.forEach((m, i) => { if (Math.abs(px(m[0], x) - p) < 4) row(`${i + 1}: ${m[1]}`, ''); });
    bar.setAttribute('d', `M${p} ${y.px[0]}V${y.px[1]}`);
    tip.style.left = Math.max(0, p > 440 ? p - 14 - tip.offsetWidth : p + 14) + 'px';
  };
  const charts = together[figure.dataset.axis] ||= [];
  charts.push(show);
  const showAll = (value) => charts.forEach((show) => show(value));
  let at = -Infinity;
  const point = (p) => {
    // Where points are few, the nearest one is meant.
    const nearest = (a, b) => Math.abs(b - p) < Math.abs(a - p) ? b : a;
    at = stops.length <= 120 ? stops.reduce(nearest, Infinity) : p;
    at = Math.min(Math.max(at, x.px[0]), x.px[1]);
    showAll(between(...x.at, part(at, x.px), x.log));
  };
  svg.addEventListener('pointermove', (e) => {
    const box = svg.getBoundingClientRect();
    point((e.clientX - box.left) * svg.viewBox.baseVal.width / box.width);
  });
  for (const end of ['pointerleave', 'blur']) figure.addEventListener(end, () => showAll(null));
  figure.addEventListener('keydown', (e) => {
    if (e.key === 'Escape') showAll(null);
    if (e.key === 'ArrowLeft') point(stops.findLast((s) => s < at - 0.99) ?? at);
    if (e.key === 'ArrowRight') point(stops.find((s) => s > at + 0.99) ?? at);
    if (/^Arrow(Left|Right)$/.test(e.key)) e.preventDefault();
  });
}
