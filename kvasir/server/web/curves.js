// A curve of the last two minutes. Deliberately no axes: its name, its latest value and the top.
import {h, svg} from './dom.js';

const POINTS = 120;
const WIDTH = 240;
const HEIGHT = 44;

export class Curve {
  // format: a value as text. most: the top of the curve; unset: the highest value of those shown.
  constructor(name, {format, most, className}) {
    this.format = format;
    this.most = most;
    this.values = [];  // null: nothing to say at that time
    this.area = svg('polygon', {class: 'area'});
    this.line = svg('polyline', {class: 'line'});
    this.value = h('span', {class: 'value'}, '–');
    this.element = h('figure', {class: `curve ${className}`},
      h('figcaption', {}, h('span', {}, name), this.value),
      svg('svg', {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none',
                  'aria-hidden': true}, this.area, this.line));
  }

  add(value) {
    this.values = [...this.values, value].slice(-POINTS);
    const known = this.values.filter((v) => v !== null);
    if (known.length === 0) return;
    const latest = value ?? known.at(-1);
    const top = this.most ?? Math.max(...known, 1);
    this.value.textContent = this.most ? this.format(latest)
                                       : `${this.format(latest)}, at most ${this.format(top)}`;
    const points = [];
    let held = known[0];
    this.values.forEach((v, i) => {
      held = v ?? held;
      const x = WIDTH - (this.values.length - 1 - i) * (WIDTH / (POINTS - 1));
      points.push(`${x.toFixed(1)},${(HEIGHT - 2 - (held / top) * (HEIGHT - 6)).toFixed(1)}`);
    });
    this.line.setAttribute('points', points.join(' '));
    const first = points[0].split(',')[0];
    this.area.setAttribute('points', `${first},${HEIGHT} ${points.join(' ')} ${WIDTH},${HEIGHT}`);
  }
}
