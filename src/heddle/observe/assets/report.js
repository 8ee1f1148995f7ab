'use strict';
(() => {
const tip = document.createElement('div');
tip.className = 'tip';
tip.hidden = true;
document.body.append(tip);
const make = (tag, attributes) => {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  return node;
};
const scaled = (v, base, names) => {
  let i = 0;
  while (i + 1 < names.length && Math.abs(v) >= base * 0.99995) { v /= base; ++i; }
  return (i === 0 && Number.isInteger(v) ? v : v.toFixed(i === 0 ? 1 : 2)) + (names[i] ? ' ' + names[i] : '');
};
const time = us => us < 1 ? (us * 1000).toFixed(0) + ' ns' : us < 1000 ? us.toFixed(1) + ' µs'
  : us < 1e6 ? (us / 1000).toFixed(2) + ' ms' : (us / 1e6).toFixed(2) + ' s';
const plain = v => v !== 0 && (Math.abs(v) < 1e-3 || Math.abs(v) >= 1e7) ? v.toExponential(2)
  : String(Number(v.toPrecision(5)));
const say = (v, unit) => v === null ? 'not a number' : unit === 1 ? scaled(v, 1000, ['', 'K', 'M', 'G', 'T', 'P', 'E'])
  : unit === 2 ? scaled(v, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']) : unit === 3 ? time(v) : plain(v);
const show = (event, head, rows) => {
  tip.replaceChildren();
  const title = document.createElement('b');
  title.textContent = head;
  tip.append(title);
  for (const [name, value, colour] of rows) {
    const row = document.createElement('div'), key = document.createElement('span'), val = document.createElement('span');
    if (colour) { const mark = document.createElement('i'); mark.className = 'swatch ' + colour; key.append(mark); }
    key.append(name);
    val.textContent = value;
    row.append(key, val);
    tip.append(row);
  }
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  let x = event.clientX + 16, y = event.clientY + 16;
  if (x + box.width > innerWidth - 8) x = Math.max(8, event.clientX - box.width - 16);
  if (y + box.height > innerHeight - 8) y = Math.max(8, event.clientY - box.height - 16);
  tip.style.left = x + 'px';
  tip.style.top = y + 'px';
};
const inside = (svg, event) => {
  const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
  return [(event.clientX - box.left) / box.width * view.width, (event.clientY - box.top) / box.height * view.height];
};
const onMove = (target, move, leave) => {
  target.addEventListener('pointermove', move);
  target.addEventListener('pointerleave', () => { tip.hidden = true; leave(); });
};

// One drawing of a figure that has several: `data` is the figure's, and what this drawing alone has.
const lineFigure = (svg, data) => {
  const hover = svg.querySelector('.hover'), [left, top, right, bottom] = data.plot;
  const part = (axis, v) => axis.log ? Math.log(v / axis.low) / Math.log(axis.high / axis.low)
    : (v - axis.low) / (axis.high - axis.low);
  const atX = v => left + part(data.x, v) * (right - left), atY = v => bottom - part(data.y, v) * (bottom - top);
  onMove(svg, event => {
    const [px] = inside(svg, event);
    const want = data.x.low + (Math.min(right, Math.max(left, px)) - left) / (right - left) * (data.x.high - data.x.low);
    hover.replaceChildren();
    let near = null;
    const found = data.series.map(series => {
      let lo = 0, hi = series.x.length;
      while (lo < hi) { const mid = (lo + hi) >> 1; if (series.x[mid] <= want) lo = mid + 1; else hi = mid; }
      let i = lo - 1;
      if (!data.stepped && (i < 0 || (lo < series.x.length && series.x[lo] - want < want - series.x[i]))) i = lo;
      i = Math.max(0, Math.min(series.x.length - 1, i));
      if (near === null || Math.abs(series.x[i] - want) < Math.abs(near - want)) near = series.x[i];
      return i;
    });
    if (near === null) return;
    const rows = [];
    const reach = (data.x.high - data.x.low) / 40;
    data.series.forEach((series, k) => {
      const x = series.x[found[k]], y = series.y[found[k]];
      if (!data.stepped && Math.abs(x - near) > reach) return;
      rows.push([series.label, say(y, data.y.unit), series.colour]);
      if (!data.stepped && y !== null && (!data.y.log || y > 0)) {
        hover.append(make('circle', {class: 'point ' + series.colour, cx: atX(x), cy: atY(y), r: 3.5}));
      }
    });
    const line = data.stepped ? want : near;
    hover.prepend(make('line', {class: 'cross', x1: atX(line), x2: atX(line), y1: top, y2: bottom}));
    show(event, (data.x.unit === 3 ? '' : data.xLabel + ' ') + say(line, data.x.unit), rows);
  }, () => hover.replaceChildren());
};

// A heat map of several moments: the slider of one moves all that have a moment of the same name.
const sliders = [];
const addSlider = (figure, drawings, data) => {
  const bar = document.createElement('div'), slider = document.createElement('input');
  bar.className = 'tools';
  slider.type = 'range';
  slider.min = 0;
  slider.max = slider.value = data.frames.length - 1;
  bar.append(slider);
  drawings[0].before(bar);
  const title = figure.querySelector('.title'), last = data.frames.length - 1;
  const choose = label => {
    const i = data.frames.findIndex(frame => frame.label === label);
    if (i < 0) return;
    slider.value = i;
    slider.setAttribute('aria-valuetext', label);
    title.textContent = data.title + ' ' + label;
    data.shown.ratio = data.frames[i].ratio;
    drawings.forEach((svg, v) => paint(svg, data, data.views[v].plot));
  };
  slider.setAttribute('aria-label', data.title);
  slider.setAttribute('aria-valuetext', data.frames[last].label);
  slider.addEventListener('input', () => { for (const other of sliders) other(data.frames[slider.value].label); });
  sliders.push(choose);
};
// One path a shade, as the page has them drawn for the moment that it shows first.
const paint = (svg, data, [left, top, right, bottom]) => {
  const wide = (right - left) / data.columns, high = (bottom - top) / data.shown.ratio.length, shades = [];
  const gapX = wide > 5 ? 1 : 0, gapY = high > 5 ? 1 : 0, near = v => Math.round(v * 10) / 10;
  data.shown.ratio.forEach((row, r) => row.forEach((ratio, c) => {
    if (ratio === null) return;
    const part = ratio <= 0 ? -1 : Math.max(-1, Math.min(1, Math.log(ratio) / Math.log(data.most)));
    const shade = Math.round((part + 1) * 5), x0 = near(left + wide * c), x1 = near(left + wide * (c + 1));
    shades[shade] = (shades[shade] || '') + `M${x0} ${near(top + high * r)}h${near(x1 - x0 - gapX)}v${near(high - gapY)}H${x0}z`;
  }));
  for (const path of svg.querySelectorAll('path')) path.remove();
  shades.forEach((d, shade) => {
    const path = make('path', {class: 'h' + shade, d});
    if (!gapX) path.setAttribute('shape-rendering', 'crispEdges');
    svg.querySelector('text').before(path);
  });
};

const heatFigure = (svg, data) => {
  const hover = svg.querySelector('.hover'), [left, top, right, bottom] = data.plot;
  const wide = (right - left) / data.columns, high = (bottom - top) / data.shown.ratio.length;
  onMove(svg, event => {
    const [px, py] = inside(svg, event), c = Math.floor((px - left) / wide), r = Math.floor((py - top) / high);
    hover.replaceChildren();
    const value = (data.shown.ratio[r] || [])[c];
    if (value === undefined) { tip.hidden = true; return; }
    hover.append(make('rect', {class: 'cell', x: left + c * wide, y: top + r * high, width: wide, height: high}));
    show(event, data.columnWord + ' ' + c, [[data.rowWord, data.rows[r] || r], [data.ratioWord, say(value, 0) + '×']]);
  }, () => hover.replaceChildren());
};

const lanesFigure = (figure, svg, data) => {
  const [width, height] = data.size, [plotLeft, top, right, bottom] = data.plot, fields = 10, count = data.spans.length / fields;
  const phases = ['forward', 'input gradient', 'weight gradient', 'gather, reduce, update', 'other', 'backward (both)'];
  const frame = document.createElement('div'), canvas = document.createElement('canvas');
  frame.className = 'canvas-frame';
  svg.classList.add('for-print');
  svg.before(frame);
  frame.append(canvas);
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', data.title);
  const bar = document.createElement('div');
  bar.className = 'tools';
  const phaseButton = document.createElement('button'), kindButton = document.createElement('button');
  const reset = document.createElement('button'), hint = document.createElement('span');
  const closer = document.createElement('button'), farther = document.createElement('button');
  phaseButton.textContent = 'by phase';
  kindButton.textContent = 'by ' + data.kindWord;
  reset.textContent = 'whole step';
  closer.textContent = '+';
  farther.textContent = '−';
  closer.title = 'zoom in';
  farther.title = 'zoom out';
  hint.textContent = 'Ctrl + wheel or double-click to zoom, drag to move';
  bar.append(phaseButton, kindButton, closer, farther, reset, hint);
  frame.before(bar);
  const legend = figure.querySelector('.legend'), phaseLegend = legend ? [...legend.childNodes] : [];
  const perLane = data.lanes.map(() => []), kindTime = new Map();
  for (let i = 0; i < count; ++i) {
    perLane[data.spans[fields * i]].push(i);
    const kind = data.spans[fields * i + 5];
    kindTime.set(kind, (kindTime.get(kind) || 0) + data.spans[fields * i + 2]);
  }
  kindButton.hidden = kindTime.size < 2;
  phaseButton.hidden = kindButton.hidden;
  // Where a span lies in its lane: of two that run at once, each has a half.
  const halfTop = [0, 0, data.bar / 2 + 0.5], halfHeight = [data.bar, data.bar / 2 - 0.5, data.bar / 2 - 0.5];
  const kinds = [...kindTime.keys()].sort((a, b) => data.kindWord === 'kind' ? kindTime.get(b) - kindTime.get(a)
    : data.names[a].localeCompare(data.names[b], 'en', {numeric: true}));
  const kindColour = new Map(kinds.map((kind, i) => [kind, i < 8 ? 'c' + i : 'p4']));
  let from = 0, to = data.length, byKind = false, drag = null, asked = false, hit = -1;
  const colours = () => {
    const style = getComputedStyle(document.documentElement), get = name => style.getPropertyValue(name).trim();
    const map = {lane: get('--lane'), grid: get('--grid'), tick: get('--soft'), ink: get('--ink'), card: get('--card')};
    for (let i = 0; i < 8; ++i) map['c' + i] = get('--c' + i);
    for (let i = 0; i < 6; ++i) map['p' + i] = get('--p' + i);
    return map;
  };
  // Letters stay readable on a narrow page: there the lanes are drawn for its own width, with shorter names.
  const zoomOf = shown => Math.max(shown / width, 0.9);
  const leftOf = wide => Math.min(plotLeft, 0.3 * wide);
  let left = plotLeft;
  const draw = () => {
    asked = false;
    const shown = frame.clientWidth, ratio = devicePixelRatio || 1, zoom = zoomOf(shown);
    const wide = shown / zoom;
    left = leftOf(wide);
    canvas.width = Math.round(shown * ratio);
    canvas.height = Math.round(height * zoom * ratio);
    canvas.style.height = height * zoom + 'px';
    const g = canvas.getContext('2d'), colour = colours(), end = wide - (width - right);
    g.setTransform(ratio * zoom, 0, 0, ratio * zoom, 0, 0);
    g.clearRect(0, 0, wide, height);
    g.font = '11px system-ui, sans-serif';
    g.textBaseline = 'middle';
    const at = us => left + (us - from) / (to - from) * (end - left);
    data.tops.forEach((y, lane) => {
      g.fillStyle = colour.lane;
      g.fillRect(left, y, end - left, data.bar);
    });
    const rough = (to - from) / Math.max(3, Math.min(9, (end - left) / 75)), power = 10 ** Math.floor(Math.log10(rough)), factor = rough / power;
    const step = power * (factor < 1.5 ? 1 : factor < 3.5 ? 2 : factor < 7.5 ? 5 : 10);
    const digits = (unit) => Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
    g.textAlign = 'center';
    for (let t = Math.ceil(from / step) * step; t <= to + step * 1e-6; t += step) {
      g.fillStyle = colour.grid;
      g.fillRect(at(t), top, 1, bottom - top);
      g.fillStyle = colour.tick;
      const unit = to >= 1e6 ? [1e6, ' s'] : to >= 1000 ? [1000, ' ms'] : [1, ' µs'];
      g.fillText(t === 0 ? '0' : (t / unit[0]).toFixed(digits(unit[0])) + unit[1], at(t), bottom + 11);
    }
    g.fillText('time in step', (left + end) / 2, bottom + 27);
    g.save();
    g.beginPath();
    g.rect(left, top, end - left, bottom - top);
    g.clip();
    perLane.forEach((list, lane) => {
      const last = [-1e9, -1e9, -1e9], lastColour = ['', '', ''];
      for (const i of list) {
        const k = fields * i, start = data.spans[k + 1], length = data.spans[k + 2];
        if (start > to || start + length < from) continue;
        const x = at(start), w = Math.max(0.5, at(start + length) - x);
        const name = byKind ? kindColour.get(data.spans[k + 5]) : 'p' + data.spans[k + 3];
        const half = data.spans[k + 9], y = data.tops[lane] + halfTop[half], high = halfHeight[half];
        if (w < 1 && x + w < last[half] + 0.4 && name === lastColour[half]) continue;
        g.fillStyle = colour[name];
        // Neighbours of one colour stay apart once they are wide enough to spare the room.
        g.fillRect(x, y, w > 3 ? w - 0.8 : w, high);
        last[half] = x + w;
        lastColour[half] = name;
        if (w > 16) {
          const small = half > 0;
          g.font = (small ? 8 : 11) + 'px system-ui, sans-serif';
          g.fillStyle = colour.card;
          g.textAlign = 'left';
          const room = Math.floor((w - 4) / (small ? 4.6 : 6.2));
          let label = data.names[data.spans[k + 4]];
          if (label.length > room) label = data.kindWord === 'kind' ? data.names[data.spans[k + 5]] : '';
          if (label.length > room) label = room > 7 ? label.slice(0, room - 1) + '…' : '';
          g.fillText(label, Math.max(x, left) + 3, y + high / 2 + 0.5);
        }
      }
    });
    if (hit >= 0) {
      const k = fields * hit, x = at(data.spans[k + 1]), w = Math.max(1.5, at(data.spans[k + 1] + data.spans[k + 2]) - x);
      g.strokeStyle = colour.ink;
      g.lineWidth = 1.5;
      const half = data.spans[k + 9];
      g.strokeRect(x - 0.5, data.tops[data.spans[k]] + halfTop[half] - 1, w + 0.5, halfHeight[half] + 2);
    }
    g.restore();
    g.font = '11px system-ui, sans-serif';
    g.fillStyle = colour.tick;
    g.textAlign = 'right';
    data.lanes.forEach((label, lane) => {
      if (label.includes('·')) label = label.replace(/^rank /, '');
      const room = Math.max(4, Math.floor((left - 10) / 6.2));
      g.fillText(label.length > room ? label.slice(0, room - 1) + '…' : label, left - 8, data.tops[lane] + data.bar / 2);
    });
  };
  const ask = () => { if (!asked) { asked = true; requestAnimationFrame(draw); } };
  const place = event => {
    const box = canvas.getBoundingClientRect(), zoom = zoomOf(frame.clientWidth);
    return [(event.clientX - box.left) / zoom, (event.clientY - box.top) / zoom,
            frame.clientWidth / zoom - (width - right)];
  };
  const zoomAt = (event, factor) => {
    const [px, , end] = event ? place(event) : [0, 0, 0];
    const share = event ? Math.min(1, Math.max(0, (px - left) / (end - left))) : 0.5;
    const middle = from + share * (to - from);
    const span = Math.min(data.length, Math.max(data.length / 1e5, (to - from) * factor));
    from = Math.min(data.length - span, Math.max(0, middle - share * span));
    to = from + span;
    ask();
  };
  canvas.addEventListener('wheel', event => {
    if (!event.ctrlKey && !event.metaKey) return;  // the plain wheel scrolls the page
    event.preventDefault();
    zoomAt(event, Math.exp(Math.sign(event.deltaY) * Math.min(60, Math.abs(event.deltaY)) / 200));
  }, {passive: false});
  canvas.addEventListener('dblclick', event => zoomAt(event, 0.4));
  canvas.addEventListener('pointerdown', event => {
    drag = {x: place(event)[0], from, to};
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointerup', () => { drag = null; });
  onMove(canvas, event => {
    const [px, py, end] = place(event);
    if (drag) {
      const span = drag.to - drag.from, moved = (px - drag.x) / (end - left) * span;
      from = Math.min(data.length - span, Math.max(0, drag.from - moved));
      to = from + span;
      tip.hidden = true;
      ask();
      return;
    }
    const lane = data.tops.findIndex(y => py >= y - 3 && py < y + data.bar + 3);
    const t = from + (px - left) / (end - left) * (to - from), slack = 1.5 / (end - left) * (to - from);
    let best = -1;
    if (lane >= 0 && px >= left - 2) {
      for (const i of perLane[lane]) {
        const start = data.spans[fields * i + 1], length = data.spans[fields * i + 2];
        if (t < start - slack || t > start + length + slack) continue;
        const half = data.spans[fields * i + 9], y = py - data.tops[lane] - data.bar / 2;
        if ((half === 1 && y > 0) || (half === 2 && y <= 0)) continue;
        // The one really under the pointer wins over those only near it, the shortest over those around it.
        const score = j => {
          const s = data.spans[fields * j + 1], l = data.spans[fields * j + 2];
          return Math.max(s - t, t - s - l, 0) * 1e9 + l;
        };
        if (best < 0 || score(i) < score(best)) best = i;
      }
    }
    if (best !== hit) { hit = best; ask(); }
    if (best < 0) { tip.hidden = true; return; }
    const [, start, length, phase, name, kind, stage, microbatch, layer] = data.spans.slice(fields * best, fields * best + 9);
    const rows = [['phase', phases[phase], 'p' + phase]];
    if (data.kindWord === 'kind') rows.unshift(['kind', data.names[kind]]);
    else if (kindTime.size > 1) rows.push([data.kindWord, data.names[kind].replace(data.kindWord + ' ', '')]);
    if (stage >= 0) rows.push(['stage', stage]);
    if (layer >= 0) rows.push(['layer', layer]);
    if (microbatch >= 0) rows.push(['microbatch', microbatch]);
    rows.push(['takes', time(length)], ['from', time(start)], ['on', data.lanes[lane]]);
    show(event, data.names[name], rows);
  }, () => { hit = -1; drag = null; ask(); });
  const choose = kind => {
    byKind = kind;
    phaseButton.classList.toggle('on', !kind);
    kindButton.classList.toggle('on', kind);
    if (legend) {
      legend.replaceChildren(...(kind ? kinds.slice(0, 8).map(k => {
        const entry = document.createElement('span'), mark = document.createElement('i');
        mark.className = 'swatch ' + kindColour.get(k);
        entry.append(mark, data.names[k]);
        return entry;
      }) : phaseLegend));
    }
    ask();
  };
  phaseButton.onclick = () => choose(false);
  kindButton.onclick = () => choose(true);
  closer.onclick = () => zoomAt(null, 0.5);
  farther.onclick = () => zoomAt(null, 2);
  reset.onclick = () => { from = 0; to = data.length; ask(); };
  choose(false);
  new ResizeObserver(ask).observe(frame);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', ask);
};

for (const figure of document.querySelectorAll('figure.chart')) {
  const drawings = figure.querySelectorAll('svg'), source = figure.querySelector('script');
  if (!drawings.length || !source) continue;
  const data = JSON.parse(source.textContent);
  if (figure.dataset.kind === 'lanes') { lanesFigure(figure, drawings[0], data); continue; }
  const draw = figure.dataset.kind === 'heat' ? heatFigure : lineFigure;
  data.shown = {ratio: data.ratio};
  if (data.frames && data.frames.length > 1) addSlider(figure, drawings, data);
  drawings.forEach((svg, i) => draw(svg, {...data, ...data.views[i]}));
}
})();
