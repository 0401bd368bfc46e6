// Shows the values under the mouse, on all charts of a section that share an axis.
const groupDigits = (text) => text.replace(/^-?\d{5,}/, (n) => n.replace(/\B(?=(\d{3})+$)/g, '\u00a0'));
// Formats a value with three digits and a suitable multiple, as in tables and labels.
const formatValue = (value, axis) => {
  let [size, name] = axis.multiples.find((m) => value === 0 && m[0] === 1) || axis.multiples[0];
  for (const m of axis.multiples) if (Math.abs(value) / m[0] >= 0.9995) [size, name] = m;
  const n = value / size, a = Math.abs(n);
  if (a === 0 || (axis.whole && Number.isInteger(n) && a < 1e15)) return groupDigits(n.toFixed(0)) + name;
  if (a < 0.001 || a >= 1e9) return n.toExponential(2).replace('e+', 'e') + name;
  return groupDigits(n.toFixed(Math.max(0, 2 - Math.floor(Math.log10(a * 1.000502))))) + name;
};
const interpolate = (a, b, part, log) => log ? a * (b / a) ** part : a + (b - a) * part;
const append = (parent, name, settings) => {
  const made = parent.appendChild(document.createElementNS(parent.namespaceURI, name));
  for (const key in settings) made.setAttribute(key, settings[key]);
  return made;
};
const linkedCharts = {};
for (const figure of document.querySelectorAll('figure[data-axis]')) {
  const plot = figure.firstElementChild, svg = plot.firstElementChild;
  const { x, y, series, marks } = JSON.parse(figure.querySelector('script').textContent);
  const part = (v, [lo, hi], log) => log ? Math.log(v / lo) / Math.log(hi / lo) : (v - lo) / (hi - lo);
  const px = (v, axis) => interpolate(...axis.px, part(v, axis.at, axis.log));
  for (const s of series) s.px = s.x.map((v) => px(v, x));
  const positions = [...new Set(series.flatMap((s) => s.px))].sort((a, b) => a - b);
  const cursor = append(svg, 'g', { class: 'cross', visibility: 'hidden' }), bar = append(cursor, 'path');
  const symbols = series.map((s) => append(append(cursor, 'g', { class: s.colour }), 'circle', { r: 4, class: 'symbol' }));
  const tooltip = append(plot, 'div', { class: 'tip', style: `top:${y.px[1] + 6}px` });
  // Smallest and largest value within half a pixel, or else the value of the line there.
  const read = (s, p) => {
    const near = s.y.filter((v, i) => v !== null && Math.abs(s.px[i] - p) <= 0.5);
    if (near.length) return [Math.min(...near), Math.max(...near)];
    const i = s.px.findLastIndex((at) => at < p), [a, b] = [s.y[i] ?? null, s.y[i + 1] ?? null];
    if (s.shape === 'dots' || a === null || b === null) return null;
    const v = s.shape === 'step' ? a : interpolate(a, b, part(p, s.px.slice(i, i + 2)), y.log);
    return [v, v];
  };
  const row = (name, value, colour) => {
    const line = append(tooltip, colour ? 'div' : 'p'), left = append(line, 'span');
    if (colour) append(left, 'i').style.color = colour;
    left.append(name || (colour ? y.label : ''));
    append(line, 'b').textContent = value;
  };
  // Shows the values at a position of the axis, or hides them.
  const show = (value) => {
    cursor.setAttribute('visibility', value === null ? 'hidden' : 'visible');
    tooltip.style.display = value === null ? 'none' : 'block';
    if (value === null) return;
    const p = px(value, x), exact = value / x.multiple[0][0];
    tooltip.textContent = '';
    row('', x.log ? formatValue(value, x) : groupDigits(exact.toFixed(x.decimals)) + x.multiple[0][1]);
    series.forEach((s, i) => {
      const found = read(s, p), texts = new Set((found || []).map((v) => formatValue(v, y)));
      row(s.name, [...texts].join(' to ') || '–', getComputedStyle(symbols[i]).color);
      symbols[i].setAttribute('visibility', found ? 'inherit' : 'hidden');
      if (found) symbols[i].setAttribute('transform', `translate(${p} ${px(found[1], y)})`);
    });
    marks.forEach((m, i) => { if (Math.abs(px(m[0], x) - p) < 4) row(`${i + 1}: ${m[1]}`, ''); });
    bar.setAttribute('d', `M${p} ${y.px[0]}V${y.px[1]}`);
    tooltip.style.left = Math.max(0, p > 440 ? p - 14 - tooltip.offsetWidth : p + 14) + 'px';
  };
  const charts = linkedCharts[figure.dataset.axis] ||= [];
  charts.push(show);
  const showAll = (value) => charts.forEach((show) => show(value));
  let at = -Infinity;
  const moveTo = (p) => {
    // With few points, the cursor snaps to the nearest one.
    const nearest = (a, b) => Math.abs(b - p) < Math.abs(a - p) ? b : a;
    at = positions.length <= 120 ? positions.reduce(nearest, Infinity) : p;
    at = Math.min(Math.max(at, x.px[0]), x.px[1]);
    showAll(interpolate(...x.at, part(at, x.px), x.log));
  };
  svg.addEventListener('pointermove', (e) => {
    const box = svg.getBoundingClientRect();
    moveTo((e.clientX - box.left) * svg.viewBox.baseVal.width / box.width);
  });
  for (const end of ['pointerleave', 'blur']) figure.addEventListener(end, () => showAll(null));
  figure.addEventListener('keydown', (e) => {
    if (e.key === 'Escape') showAll(null);
    if (e.key === 'ArrowLeft') moveTo(positions.findLast((s) => s < at - 0.99) ?? at);
    if (e.key === 'ArrowRight') moveTo(positions.find((s) => s > at + 0.99) ?? at);
    if (/^Arrow(Left|Right)$/.test(e.key)) e.preventDefault();
  });
}
