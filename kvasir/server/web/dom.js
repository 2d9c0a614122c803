// Elements from code. Deliberately no way to give HTML: every string becomes text.

// h('a', {class: 'x', href: '/', onclick: f}, 'text', child, ...). Properties with a false or
// missing value are left out; those that begin with "on" are listeners.
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  return fill(element, properties, children);
}

// The same for SVG.
export function svg(tag, properties = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  return fill(element, properties, children);
}

export const byId = (id) => document.getElementById(id);

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === false || value === undefined || value === null) continue;
    if (name.startsWith('on')) {
      element.addEventListener(name.slice(2), value);
    } else {
      element.setAttribute(name, value === true ? '' : value);
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
