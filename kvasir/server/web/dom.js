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

// Whether a key is part of composing a character, as of Japanese. Safari says so by the code alone.
export const isComposing = (event) => event.isComposing || event.keyCode === 229;

// What is typed in a field. Half a character, as cutting may leave one, is none.
export const textOf = (field) => field.value.toWellFormed?.().trim() ?? field.value.trim();

export const byId = (id) => document.getElementById(id);

// Makes `children` those of `element`, but leaves what is the same already: what is pressed, selected
// or focused there stays. `isContainer` says of an element that differs whether to look inside it.
export function become(element, children, isContainer) {
  children.forEach((child, i) => {
    const was = element.childNodes[i];
    if (!was) {
      element.append(child);
    } else if (!isSame(was, child)) {
      if (was.nodeType === 1 && isContainer(was) && was.cloneNode().isEqualNode(child.cloneNode())) {
        become(was, [...child.childNodes], isContainer);
      } else {
        was.replaceWith(child);
      }
    }
  });
  while (element.childNodes.length > children.length) element.lastChild.remove();
}

// But for what a button says after it was pressed, for a while.
function isSame(was, fresh) {
  if (was.isEqualNode(fresh)) return true;
  if (!was.querySelector?.('[data-label]')) return false;
  const plain = was.cloneNode(true);
  plain.querySelectorAll('[data-label]').forEach(unsay);
  return plain.isEqualNode(fresh);
}

// Lets a button say something else for two seconds.
export function say(button, text) {
  button.dataset.label ??= button.textContent;
  button.textContent = text;
  setTimeout(() => unsay(button), 2000);
}

function unsay(button) {
  if (button.dataset.label === undefined) return;
  button.textContent = button.dataset.label;
  delete button.dataset.label;
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === false || value === undefined || value === null) continue;
    if (name.startsWith('on')) {
      element.addEventListener(name.slice(2), value);
    } else {
      const isWord = name.startsWith('aria-');  // "true", where others are there or not
      element.setAttribute(name, value === true && !isWord ? '' : value);
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
